"""NumPy's .npy, an array, and .npz, a zip archive of them, such as Keras's mnist.npz. Nothing in them is unpickled.

A member is unpacked up to the size that the archive claims, if so many packed bytes can hold it, and not further: what
else the packed bytes may hold stays packed. Then the .npy header inside must claim just these bytes.
"""

from __future__ import annotations

import io
import math
import os
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from ..errors import DataError, FileError
from .arrays import from_arrays
from .claims import AGAIN, check_unpacked, regular_file, wrong_kind
from .dataset import Dataset, normalisation

_WANTED = "an .npz file"
_MAX_HEADER = 10_000  # characters, NumPy's own limit


def from_npz(path: str | os.PathLike[str]) -> tuple[Dataset, Dataset]:
    """(train, test) from arrays x_train, y_train, x_test, y_test, as `from_arrays` takes them; FileError, DataError.

    Both sets are normalised by the mean and standard deviation of the training images.
    """
    path = Path(path)
    names = ("x_train", "y_train", "x_test", "y_test")
    arrays = read_npz(path, names)
    sets = [from_arrays(arrays[f"x_{s}"], arrays[f"y_{s}"], name=f"{path.stem}, {s}") for s in ("train", "test")]
    train, test = sets
    if train.sample_shape != test.sample_shape:
        raise DataError(f"images of {path}", expected=f"{train.sample_shape} as in training", got=test.sample_shape)
    classes = max(train.classes, test.classes, key=len)  # one split may lack the last class
    mean, std = normalisation(train.x)
    train, test = (replace(s, name=path.stem, classes=classes, mean=mean, std=std) for s in sets)
    return train, test


def read_npz(path: str | os.PathLike[str], names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The arrays of these names. Raises FileError if one is missing, or is not of plain numbers."""
    path = Path(path)
    size = regular_file(path, _WANTED)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            missing = [name for name in names if name not in members]
            if missing:
                got = ", ".join(sorted(members))[:200] or "nothing"
                raise FileError(str(path), expected=f"arrays {', '.join(names)}", got=got)
            return {name: _read(archive, members[name], path, size) for name in names}
    except FileError:
        raise
    except zipfile.BadZipFile as error:
        with open(path, "rb") as file:
            head = file.read(64)
        if head[:2] != b"PK":
            raise wrong_kind(path, _WANTED, head) from None
        raise FileError(str(path), expected=_WANTED, got=f"'{error}'", fix=AGAIN) from None
    except Exception as error:  # whatever damage makes zipfile and NumPy raise, it means the same to the user
        raise FileError(str(path), expected=_WANTED, got=f"{type(error).__name__}: {error}"[:200], fix=AGAIN) from None


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, size: int) -> np.ndarray:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{member.filename} is packed in another way than NumPy's")
    if member.compress_size > size:
        raise ValueError(f"{member.filename} has more bytes than the file")
    check_unpacked(path, member.filename, member.file_size, member.compress_size)
    with archive.open(member) as stream:
        # Without a length, zipfile unpacks all there is and throws away what is too much. At the end of these bytes it
        # compares the checksum.
        return parse_npy(stream.read(member.file_size))


def parse_npy(content: bytes) -> np.ndarray:
    """The array in the bytes of an .npy file, read-only, of plain numbers. Raises ValueError and its like."""
    stream = io.BytesIO(content)
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an .npy file of version {version}")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    with warnings.catch_warnings():  # about headers of Python 2, about escapes in text
        warnings.simplefilter("ignore")
        shape, fortran, dtype = read(stream, max_header_size=_MAX_HEADER)
    if dtype.hasobject or dtype.names or dtype.subdtype or not dtype.itemsize:
        raise ValueError(f"an array of {dtype}, which are not plain numbers")
    if min(shape, default=0) < 0:
        raise ValueError(f"an array of shape {shape}")
    length, there = math.prod(shape) * dtype.itemsize, len(content) - stream.tell()
    if there != length:
        raise ValueError(f"an array of {' × '.join(map(str, shape))} {dtype}: {there:,} bytes for {length:,}")
    return np.frombuffer(content, dtype, offset=stream.tell()).reshape(shape, order="F" if fortran else "C")
