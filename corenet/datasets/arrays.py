"""From whatever holds images and labels in memory to a Dataset, or to one clear error.

NumPy would take nearly anything: labels that are floats, images with a NaN, lists of unequal length. Each of these
trains to nonsense or fails far from its cause, so each is refused here, with what it is and what to do.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import DataError
from .dataset import Dataset

NUMBERED = 1000  # without names, classes are called by their numbers; where there are more, integers are rather values


def from_arrays(
    x: ArrayLike,
    y: ArrayLike | None = None,
    *,
    classes: Sequence[str] | None = None,
    name: str = "arrays",
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
) -> Dataset:
    """Check images (n, h, w[, c]) and targets (n, …) and make a Dataset; DataError if unusable.

    Integer targets become int64 and others float32; what they mean, class numbers or values, is the loss's to know.
    Of images, uint8 and float32 are taken as they are and not copied. Other floats become float32, other integers must
    lie in 0..255 and become uint8, bool becomes uint8 0 and 255: the values 0 and 1 to the net.

    Without `classes`, those of integers up to 999 have their numbers for names; others have none.
    """
    images = _images(x, name)
    targets = None if y is None else _targets(y, name)
    if isinstance(classes, str):
        raise DataError(f"classes of {name!r}", expected="a sequence of names", got=f"the string {classes!r}")
    if classes is not None:
        names = tuple(str(c) for c in classes)
    else:
        labels = 0 if targets is None or targets.dtype != np.int64 else int(targets.max(initial=-1)) + 1
        names = numbered(labels) if labels <= NUMBERED else ()
    mean, std = _per_channel(mean, 0.0, "mean", name), _per_channel(std, 1.0, "std", name)
    return Dataset(images, targets, names, name, mean, std)


def numbered(n: int) -> tuple[str, ...]:
    """Names for n classes that have none."""
    return tuple(str(i) for i in range(n))


def as_dataset(obj: object) -> Dataset:
    """A Dataset as it is, a tuple (x, y) or an array x (no labels) through `from_arrays`; DataError for all else."""
    if isinstance(obj, Dataset):
        return obj
    if isinstance(obj, tuple) and len(obj) == 2:
        return from_arrays(obj[0], obj[1])
    if isinstance(obj, np.ndarray) or hasattr(obj, "__array__"):
        return from_arrays(obj)
    raise DataError(
        "not a data set",
        expected="a corenet Dataset, a tuple (x, y) of images and labels, or an array of images",
        got=f"a tuple of {len(obj)}" if isinstance(obj, tuple) else type(obj).__name__,
        fix="corenet.datasets.from_idx reads a folder; np.asarray makes an array of a list.",
    )


def _images(x: ArrayLike, name: str) -> NDArray[Any]:
    what = f"images of {name!r}"
    array = _array(x, what)
    if array.dtype.kind not in "biuf":
        fix = "Stack images of one size into one array of numbers, with np.stack."
        raise DataError(what, expected="an array of integers, floats or bool", got=f"dtype {array.dtype}", fix=fix)
    if array.ndim not in (3, 4):
        fix = {
            2: "One image alone is x[None]; a table (n, features) is x[:, None, None, :].",
            5: "A volume is an image to be reshaped: x.reshape(n, d, h, -1), and a net that begins with Reshape.",
        }.get(array.ndim, "Channels come last.")
        raise DataError(what, expected="shape (n, h, w) or (n, h, w, c)", got=f"shape {array.shape}", fix=fix)
    if array.ndim == 3:
        array = array[..., None]
    if array.size == 0:
        return np.zeros(array.shape, np.uint8)  # the Dataset refuses it
    if array.dtype.kind == "b":
        array = array.astype(np.uint8) * np.uint8(255)
    elif array.dtype.kind in "iu":
        low, high = array.min(), array.max()
        if low < 0 or high > 255:
            fix = "Bring them to about 0..1 as float32, which is taken as it is."
            raise DataError(what, expected="integers from 0 to 255", got=f"integers from {low} to {high}", fix=fix)
        array = array.astype(np.uint8, copy=False)
    else:
        return _finite(array, what, "Repair or leave out such images: one of them makes every weight NaN.")
    return np.ascontiguousarray(array)


def _targets(y: ArrayLike, name: str) -> NDArray[Any]:
    what = f"labels of {name!r}"
    array = _array(y, what)
    if array.ndim < 1:
        raise DataError(what, expected="shape (n, …), something for each image", got=f"shape {array.shape}")
    if array.dtype.kind == "f":
        return _finite(array, what, "Leave such samples out.")
    if array.dtype.kind not in "biu":
        fix = "Names need to be numbered first: np.unique(y, return_inverse=True)[1]."
        raise DataError(what, expected="integers or floats", got=f"dtype {array.dtype}", fix=fix)
    if array.size and int(array.max()) > np.iinfo(np.int64).max:  # int: older NumPy compares as float64
        raise DataError(what, expected="labels that fit int64", got=array.max())
    return np.ascontiguousarray(array, np.int64)


def _finite(array: NDArray[Any], what: str, fix: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes inf, and is reported as such below
        array = np.ascontiguousarray(array, np.float32)
        low, high = array.min(initial=0), array.max(initial=0)  # a NaN anywhere comes out of both
    if not (np.isfinite(low) and np.isfinite(high)):
        at = tuple(int(i) for i in np.unravel_index(np.argmin(np.isfinite(array)), array.shape))
        raise DataError(what, expected="finite float32 values", got=f"{array[at]} at index {at}", fix=fix)
    return array


def _per_channel(value: float | Sequence[float] | None, default: float, what: str, name: str) -> tuple[float, ...]:
    if value is None:
        return (default,)
    try:
        return tuple(float(v) for v in np.asarray(value, np.float64).reshape(-1))
    except (TypeError, ValueError):
        expected = "a number, or one for each channel"
        raise DataError(f"{what} of {name!r}", expected=expected, got=repr(value)) from None


def _array(values: ArrayLike, what: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists; tensors on a device or with a gradient
        raise DataError(what, expected="values that form one array", got=f"'{error}'") from None
