"""Data sets by name: two that come with the package, and the complete Fashion-MNIST where the machine has it.

Nothing is ever downloaded. `files/README.md` says where the shipped files come from, `files/build.py` makes them.
"""

import difflib
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..errors import ConfigError, DataError, FileError
from .arrays import from_arrays
from .cifar import find as find_cifar10
from .cifar import from_cifar10
from .dataset import Dataset, normalisation
from .idx import find_split, from_idx, read_idx
from .npz import from_npz

FILES = Path(__file__).parent / "files"
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # of the Debian package dataset-fashion-mnist

FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
FASHION_SIZES = (60_000, 10_000)
FASHION_MEAN, FASHION_STD = (0.2860,), (0.3530,)  # of the 60,000 training images

# Where the four files may lie under a folder the user names: in it, or as Debian and torchvision lay them out.
_LAYOUTS = (".", "fashion-mnist", "FashionMNIST/raw")


def digits(*, test_fraction: float = 0.2) -> tuple[Dataset, Dataset]:
    """UCI digits as (train, test): 1,797 images 8×8×1 of 0..16, uint8, 10 classes; ConfigError for a bad fraction.

    The split is fixed: the images, ordered by class and then as published, are stepped through evenly, so the test set
    has every class in proportion. The default gives 1,437 + 360. The two share writers.
    """
    x, y = read_idx(FILES / "digits-images.idx3.gz"), read_idx(FILES / "digits-labels.idx1.gz")
    n = len(y)
    n_test = math.ceil(n * test_fraction) if 0 < test_fraction < 1 else 0
    if not 0 < n_test < n:
        raise ConfigError("test_fraction", expected="between 0 and 1, with images on both sides", got=test_fraction)
    by_class = np.argsort(y, kind="stable")
    is_test = np.zeros(n, bool)
    is_test[by_class[np.arange(n_test) * n // n_test]] = True
    classes = [str(i) for i in range(10)]
    name = f"digits ({n - n_test:,} + {n_test:,})"
    whole = from_arrays(x, y, classes=classes, name=name)
    train, test = whole.subset(~is_test), whole.subset(is_test)
    mean, std = normalisation(train.x)
    return replace(train, mean=mean, std=std), replace(test, mean=mean, std=std)


def fashion_mnist(
    folder: str | os.PathLike[str] | None = None, *, complete: bool | None = None
) -> tuple[Dataset, Dataset]:
    """Fashion-MNIST as (train, test), 28×28×1 uint8, 10 classes: complete if found, or the shipped 10,000 + 2,000.

    complete=False takes the shipped subset in any case, complete=True never. A `folder` must hold the complete set.
    The name of the result says which it is. Raises FileError, DataError, ConfigError.
    """
    if complete is False:
        if folder is not None:
            raise ConfigError("fashion_mnist", expected="folder=, or complete=False for the shipped subset", got="both")
        return _fashion_subset()
    if folder is not None:
        return _fashion_complete(_locate(Path(folder)))
    if _has_files(DEBIAN_FOLDER):
        return _fashion_complete(DEBIAN_FOLDER)
    if complete:
        raise FileError(
            "complete Fashion-MNIST",
            expected=f"its four IDX files in {DEBIAN_FOLDER}",
            got="none there",
            fix="Install the Debian package dataset-fashion-mnist, give folder=, or use complete=False: the subset.",
        )
    return _fashion_subset()


def _fashion_subset() -> tuple[Dataset, Dataset]:
    sets = []
    for split in ("train", "test"):
        x = read_idx(FILES / f"fashion-{split}-images.idx3.gz")
        y = read_idx(FILES / f"fashion-{split}-labels.idx1.gz")
        name = "Fashion-MNIST (shipped subset, 10,000 + 2,000)"
        sets.append(from_arrays(x, y, classes=FASHION_CLASSES, name=name, mean=FASHION_MEAN, std=FASHION_STD))
    return sets[0], sets[1]


def _fashion_complete(folder: Path) -> tuple[Dataset, Dataset]:
    sizes = " + ".join(f"{n:,}" for n in FASHION_SIZES)
    train, test = from_idx(folder, classes=FASHION_CLASSES, name=f"Fashion-MNIST (complete, {sizes}, {folder})")
    if (len(train), len(test)) != FASHION_SIZES or train.sample_shape != (28, 28, 1):
        raise DataError(
            f"{folder} is not the complete Fashion-MNIST",
            expected=f"{sizes} images 28×28×1",
            got=f"{len(train):,} + {len(test):,} images {'×'.join(map(str, train.sample_shape))}",
            fix="For another set in this format use from_idx(folder).",
        )
    return train, test


def _has_files(folder: Path) -> bool:
    try:
        find_split(folder, "train")
        find_split(folder, "test")
    except FileError:
        return False
    return True


def _locate(folder: Path) -> Path:
    """The first of the layouts under `folder` with all four files; else `folder`, for from_idx to say what it lacks."""
    return next((folder / layout for layout in _LAYOUTS if _has_files(folder / layout)), folder)


def _fashion_subset_by_name() -> tuple[Dataset, Dataset]:
    return fashion_mnist(complete=False)


BY_NAME: dict[str, Callable[[], tuple[Dataset, Dataset]]] = {
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "fashion-mnist-subset": _fashion_subset_by_name,
}


def load(name_or_folder: str | os.PathLike[str]) -> tuple[Dataset, Dataset]:
    """(train, test) of a name in `BY_NAME`, a folder with IDX files or CIFAR-10, or an .npz file; ConfigError."""
    given = os.fspath(name_or_folder)
    name = given.lower().replace("_", "-")
    if name in BY_NAME:
        return BY_NAME[name]()
    if given and Path(given).is_dir():
        return from_idx(given) if find_cifar10(Path(given)) is None else from_cifar10(given)
    if given.lower().endswith(".npz"):
        return from_npz(given)
    close = difflib.get_close_matches(name, BY_NAME, n=1)
    raise ConfigError(
        f"unknown data set {given!r}",
        expected=f"{', '.join(BY_NAME)}, a folder with IDX files or CIFAR-10, or an .npz file",
        got="a file" if Path(given).is_file() else "neither a name nor a folder",
        fix=f"Did you mean {close[0]!r}?" if close else None,
    )
