"""A data set is two arrays that have been checked, and how to read their values.

Images stay as they were stored, usually bytes: a quarter of the memory of float32, and one copy serves every worker.
What turns a stored image into the input of a net is written next to it and is applied chunk by chunk elsewhere:

    value = x / 255 if x is uint8 else x
    input = (value - mean) / std            after a random shift and flip, in training only

Everything is checked once, here, so that nothing behind this module has to ask what an array is.
"""

import math
import operator
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ConfigError, DataError

_USE = "corenet.datasets.from_arrays converts what can be converted."
_BLOCK = 1 << 20  # values looked at together in `normalisation`: bounds its temporary arrays


@final
@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images `x` (n, h, w, c) uint8 or float32, and targets `y` or None; DataError where they do not fit.

    Targets are integers, int64, or other values, float32: one for each image (n,), or an array for each (n, …), such as
    a label for every pixel. Which of them are classes is the loss's to know: cross-entropy refuses, before any work,
    labels that the net has no output for and that it was not told to ignore.
    """

    x: NDArray[Any]  # (n, h, w, c), C-contiguous, uint8 or float32
    y: NDArray[Any] | None  # (n, …) int64 or float32, or None: images to predict
    classes: tuple[str, ...]  # name of class 0, 1, ...
    name: str
    mean: tuple[float, ...] = (0.0,)  # one for all channels, or one each
    std: tuple[float, ...] = (1.0,)
    shift: int = 0  # training: translate by -shift..shift pixels in both directions, filling with zeros
    flip: bool = False  # training: mirror left-right, every other time on average

    def __post_init__(self) -> None:
        # Cheap checks only: workers build this on shared memory, so the pixels are not read again (from_arrays does).
        x = self.x
        if not isinstance(x, np.ndarray) or x.ndim != 4 or x.dtype not in (np.uint8, np.float32):
            got = f"{x.dtype} of shape {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
            raise DataError(f"images of {self.name!r}", expected="(n, h, w, c) uint8 or float32", got=got, fix=_USE)
        if x.size == 0:
            raise DataError(
                f"{self.name!r} is empty",
                expected="at least one image of at least one pixel",
                got=f"images of shape {x.shape}",
            )
        if not x.flags.c_contiguous:
            raise DataError(f"images of {self.name!r}", expected="a C-contiguous array", got="a strided one", fix=_USE)
        if self.y is not None:
            self._check_y(self.y)
        self._check_normalisation()
        self._check_augmentation()

    def _check_y(self, y: NDArray[Any]) -> None:
        if not isinstance(y, np.ndarray) or y.dtype not in (np.int64, np.float32) or y.ndim < 1:
            got = f"{y.dtype} of shape {y.shape}" if isinstance(y, np.ndarray) else type(y).__name__
            raise DataError(f"labels of {self.name!r}", expected="(n, …) int64 or float32", got=got, fix=_USE)
        if len(y) != len(self.x):
            raise DataError(
                f"images and labels of {self.name!r} differ in number",
                expected=f"{len(self.x):,} labels, one for each image",
                got=f"{len(y):,}",
            )

    def _check_normalisation(self) -> None:
        channels = self.x.shape[3]
        for what, values in (("mean", self.mean), ("std", self.std)):
            if not isinstance(values, tuple) or len(values) not in (1, channels):
                expected = "1 number" if channels == 1 else f"1 number, or {channels}: one for each channel"
                raise DataError(f"{what} of {self.name!r}", expected=f"{expected}, in a tuple", got=values)
            if not all(math.isfinite(v) and (v > 0 or what == "mean") for v in values):
                expected = "finite numbers" if what == "mean" else "finite numbers greater than 0"
                raise DataError(f"{what} of {self.name!r}", expected=expected, got=values)

    def _check_augmentation(self) -> None:
        smallest = min(self.x.shape[1:3])
        try:
            shift = operator.index(self.shift)
        except TypeError:
            shift = -1
        if not 0 <= shift < smallest:
            raise ConfigError(
                f"shift of {self.name!r}",
                expected=f"a whole number of pixels from 0 to {smallest - 1}, less than the image",
                got=repr(self.shift),
            )
        if not isinstance(self.flip, (bool, np.bool_)):
            raise ConfigError(f"flip of {self.name!r}", expected="True or False", got=repr(self.flip))
        if (shift or self.flip) and self.y is not None and self.y.ndim > 2:
            got = f"targets of shape {self.y.shape}, which would stay where they are"
            raise ConfigError(f"augmentation of {self.name!r}", expected="one target, or a vector, per image", got=got)

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        h, w, c = self.sample_shape
        labels = "no labels"
        if self.y is not None:
            shape = "×".join(map(str, self.y.shape[1:])) or "1"
            labels = f"{self.n_classes} classes" if self.classes else f"{shape} values each"
        return f"<Dataset {self.name!r}: {len(self):,} images {h}×{w}×{c} {self.x.dtype}, {labels}>"

    @property
    def sample_shape(self) -> tuple[int, int, int]:
        """Shape (h, w, c) of one image."""
        _, h, w, c = self.x.shape
        return h, w, c

    @property
    def n_classes(self) -> int:
        """Number of classes: of their names, whether or not a label of each occurs."""
        return len(self.classes)

    def subset(self, indices: slice | ArrayLike) -> "Dataset":
        """The samples of a slice (shared), of (k,) indices or of a (n,) bool mask (copied); DataError if none."""
        if not isinstance(indices, slice):
            chosen = np.asarray(indices)
            if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iub"):
                raise DataError(
                    f"subset of {self.name!r}",
                    expected="a slice, (k,) integer indices or a (n,) bool mask",
                    got=f"{chosen.dtype} of shape {chosen.shape}",
                )
            indices = chosen if chosen.size else slice(0, 0)  # NumPy takes [] for floats; the check below names it
        try:
            x = np.ascontiguousarray(self.x[indices])
            y = None if self.y is None else np.ascontiguousarray(self.y[indices])
        except IndexError as error:
            expected = f"indices from {-len(self)} to {len(self) - 1}, or a mask of {len(self)}"
            raise DataError(f"subset of {self.name!r}", expected=expected, got=f"'{error}'") from None
        if len(x) == 0:
            raise DataError(f"subset of {self.name!r} is empty", expected=f"some of its {len(self):,} samples", got=0)
        return replace(self, x=x, y=y)

    def with_augmentation(self, *, shift: int = 0, flip: bool = False) -> "Dataset":
        """The same samples (shared, not copied) with this augmentation in training; ConfigError out of range."""
        return replace(self, shift=shift, flip=flip)


def normalisation(x: NDArray[Any]) -> tuple[tuple[float], tuple[float]]:
    """Mean and deviation of all values of `x` (uint8 as x / 255), to 4 significant digits; deviation 1 if constant."""
    flat = x.reshape(-1)
    scale = 255.0 if x.dtype == np.uint8 else 1.0
    blocks = [flat[i : i + _BLOCK] for i in range(0, flat.size, _BLOCK)]
    mean = sum(float(block.sum(dtype=np.float64)) for block in blocks) / flat.size
    squares = sum(float(np.square(block.astype(np.float64) - mean).sum()) for block in blocks)
    constant = bool(x.min() == x.max())  # then `squares` is rounding noise, if it is not 0
    std = 1.0 if constant else math.sqrt(squares / flat.size) / scale
    return (float(f"{mean / scale:.4g}"),), (float(f"{std:.4g}"),)
