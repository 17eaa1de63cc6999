"""CIFAR-10 as it is published: six files of 32×32 colour images, in the binary or in the Python version.

    binary   data_batch_1.bin …   records of 3,073 bytes: label, 1,024 red, 1,024 green, 1,024 blue
    python   data_batch_1 …       a pickled dict: "data" (n, 3072) uint8, planes as above, and "labels"

The Python version is read without Python's unpickler (`plain_pickle.py`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..errors import DataError, FileError
from . import plain_pickle
from .arrays import from_arrays
from .claims import AGAIN, is_page, regular_file, wrong_kind
from .dataset import Dataset, normalisation

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAIN, TEST = tuple(f"data_batch_{number}" for number in range(1, 6)), ("test_batch",)
FOLDERS = (".", "cifar-10-batches-py", "cifar-10-batches-bin")  # where the files lie, as the archives unpack
MAX_BYTES = 256 << 20  # of one file; the published ones have 31 MB

_PIXELS = 3 * 32 * 32
# What a damaged pickle may raise where it is read.
_DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

Batch = tuple[np.ndarray, np.ndarray]  # (n, 3072) uint8, (n,)


def from_cifar10(folder: str | os.PathLike[str]) -> tuple[Dataset, Dataset]:
    """CIFAR-10 as (train, test), 32×32×3 uint8, 10 classes, from a folder of either version; FileError, DataError.

    Both sets are normalised by the mean and standard deviation of the training images.
    """
    found = find(Path(folder))
    if found is None:
        what = f"no CIFAR-10 in {folder}"
        raise FileError(what, expected=f"{TRAIN[0]} … {TRAIN[-1]} and {TEST[0]}, or the same with .bin", got="none")
    place, ending, read = found
    sets = []
    for split, names in (("train", TRAIN), ("test", TEST)):
        batches = [read(place / f"{name}{ending}") for name in names]
        planes = np.concatenate([x for x, _ in batches]).reshape(-1, 3, 32, 32)
        y = np.concatenate([labels for _, labels in batches])
        if y.max(initial=0) >= len(CLASSES) or y.min(initial=0) < 0:
            raise DataError(f"labels of {place}, {split}", expected="0 to 9", got=f"{y.min()} to {y.max()}")
        x = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        sets.append(from_arrays(x, y, classes=CLASSES, name=f"CIFAR-10 ({place})"))
    mean, std = normalisation(sets[0].x)
    return replace(sets[0], mean=mean, std=std), replace(sets[1], mean=mean, std=std)


def find(folder: Path) -> tuple[Path, str, Callable[[Path], Batch]] | None:
    """Where in a folder the files lie, their ending, and how to read one; None if there are none."""
    for place in (folder / name for name in FOLDERS):
        for ending, read in ((".bin", read_binary), ("", read_python)):
            if (place / f"{TRAIN[0]}{ending}").is_file():
                return place, ending, read
    return None


def _content(path: Path, wanted: str) -> bytes:
    size = regular_file(path, wanted)
    if size > MAX_BYTES:
        raise FileError(str(path), expected=f"at most {MAX_BYTES:,} bytes", got=f"{size:,}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(str(path), expected=wanted, got=f"'{error.strerror or error}'") from None
    if not content or is_page(content[:64]):  # "<" alone proves nothing: 9, 60 is a truck with a pixel
        raise wrong_kind(path, wanted, content[:64])
    return content


def read_binary(path: Path) -> Batch:
    """One file of the binary version: planes (n, 3072) uint8 and labels (n,) uint8; FileError."""
    wanted = f"a CIFAR-10 file: records of {1 + _PIXELS:,} bytes"
    content = _content(path, wanted)
    if len(content) % (1 + _PIXELS):
        raise FileError(str(path), expected=wanted, got=f"{len(content):,} bytes", fix=AGAIN)
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + _PIXELS)
    return records[:, 1:], records[:, 0]


def read_python(path: Path) -> Batch:
    """One file of the Python version: planes (n, 3072) uint8 and labels (n,) int64; FileError."""
    wanted = "a CIFAR-10 batch: a pickled dict with data and labels"
    content = _content(path, wanted)
    try:
        with warnings.catch_warnings():  # about escapes in text
            warnings.simplefilter("ignore")
            read = plain_pickle.loads(content)
        values = {key.decode() if isinstance(key, bytes) else key: value for key, value in read.items()}
        planes, labels = values["data"], values["labels"]
        if not isinstance(planes, np.ndarray) or planes.ndim != 2 or planes.shape[1] != _PIXELS or not len(planes):
            raise ValueError(f"data {getattr(planes, 'shape', type(planes).__name__)} for (n, {_PIXELS})")
        if len(labels) != len(planes) or not all(type(label) is int and 0 <= label < 256 for label in labels):
            raise ValueError(f"labels that are not {len(planes)} numbers of classes")
    except _DAMAGE as error:
        raise FileError(str(path), expected=wanted, got=f"{error}"[:200], fix=AGAIN) from None
    return planes, np.array(labels, np.int64)
