"""Data sets: what a net is trained on, where it comes from, and the checks it passes first.

dataset   Dataset: two checked arrays, and how to read their values
arrays    from arrays in memory to a Dataset
idx       the IDX files of MNIST and its relatives
cifar     CIFAR-10, binary or pickled, which `plain_pickle` reads
npz       NumPy's archives of arrays
mat       MATLAB's files
claims    what a file claims, against what it can hold: none is trusted
builtin   digits and Fashion-MNIST, shipped or found; sets by name
images    one image from a file, in the shape a net takes
"""

from .arrays import as_dataset as as_dataset
from .arrays import from_arrays as from_arrays
from .builtin import digits as digits
from .builtin import fashion_mnist as fashion_mnist
from .builtin import load as load
from .cifar import from_cifar10 as from_cifar10
from .dataset import Dataset as Dataset
from .idx import from_idx as from_idx
from .mat import read_mat as read_mat
from .npz import from_npz as from_npz

__all__ = [
    "Dataset", "as_dataset", "digits", "fashion_mnist", "from_arrays", "from_cifar10", "from_idx", "from_npz", "load",
    "read_mat",
]  # fmt: skip
