"""NumPy's .npz: a zip archive of arrays, such as Keras's mnist.npz. Nothing in it is unpickled.

Three headers claim sizes, and all must agree before an array is made: the archive's, the member's, and that of the
.npy file inside; and what is claimed must be what so many packed bytes can hold.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

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
    # What zipfile and NumPy raise for damage: a text that is no literal, a member that is encrypted, ...
    except (ArithmeticError, LookupError, EOFError, OSError, RuntimeError, SyntaxError, TypeError, ValueError,
            struct.error, zlib.error) as error:  # fmt: skip
        raise FileError(str(path), expected=_WANTED, got=f"{type(error).__name__}: {error}"[:200], fix=AGAIN) from None


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, size: int) -> np.ndarray:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{member.filename} is packed in another way than NumPy's")
    if member.compress_size > size:
        raise ValueError(f"{member.filename} has more bytes than the file")
    with archive.open(member) as stream:
        shape, fortran, dtype = _header(stream)
        length = math.prod(shape) * dtype.itemsize
        claim = f"{member.filename}, {' × '.join(map(str, shape))} {dtype}"
        if member.file_size != stream.tell() + length:
            raise ValueError(f"{claim}: {member.file_size - stream.tell():,} bytes for {length:,}")
        check_unpacked(path, claim, member.file_size, member.compress_size)
        content = stream.read()  # at most file_size, and its checksum is compared at the end
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an .npy file of version {version}")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(stream, max_header_size=_MAX_HEADER)
    if dtype.hasobject or dtype.names or dtype.subdtype or not dtype.itemsize:
        raise ValueError(f"an array of {dtype}, which are not plain numbers")
    if min(shape, default=0) < 0:
        raise ValueError(f"an array of shape {shape}")
    return shape, fortran, dtype
