"""Arrays from MATLAB's files: v5 (v6, v7) through SciPy, v7.3, which is HDF5, through h5py.

What is given to SciPy is not the file but the one element of it that is wanted, unpacked here within bounds, after its
sizes have been found to agree:

    file      header of 128 bytes │ element │ element │ …         an element: type, bytes, contents
    element   15: a packed element, or 14: a matrix  │ flags │ dimensions │ name │ numbers │
"""

from __future__ import annotations

import io
import math
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FileError, MissingExtraError
from .claims import AGAIN, MAX_DEFLATE, check_unpacked, regular_file, wrong_kind

_WANTED = "a MATLAB file"
_HEADER, _HDF5 = 128, b"\x89HDF\r\n\x1a\n"
_MATRIX, _PACKED = 14, 15
# Bytes of a number by its type in the file, and by the class of the array.
_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}
_CLASSES = {6: 8, 7: 4, 8: 1, 9: 1, 10: 2, 11: 2, 12: 4, 13: 4, 14: 8, 15: 8}
_COMPLEX = 0x800
MAX_BYTES = 4 << 30  # of a file


def read_mat(path: str | os.PathLike[str], name: str) -> np.ndarray:
    """The numeric array of that name, in the shape that MATLAB shows; FileError, MissingExtraError.

    A scene (h, w, bands) of a hyperspectral or SAR sensor comes as it is; label 0 in its ground truth means unlabelled.
    """
    path = Path(path)
    size = regular_file(path, _WANTED)
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER)
            at_512 = file.seek(512) and file.read(8)
        if _HDF5 in (head[:8], at_512):
            return _read_hdf5(path, name)
        if len(head) < _HEADER or head[126:128] not in (b"IM", b"MI"):
            raise wrong_kind(path, _WANTED, head[:64])
        if size > MAX_BYTES:
            raise FileError(str(path), expected=f"at most {MAX_BYTES:,} bytes", got=f"{size:,}")
        return _read_v5(path, path.read_bytes(), name)
    except (FileError, MissingExtraError):
        raise
    # What SciPy and h5py raise for damage.
    except (ArithmeticError, LookupError, EOFError, OSError, RuntimeError, TypeError, ValueError, struct.error,
            zlib.error, AttributeError) as error:  # fmt: skip
        raise FileError(str(path), expected=_WANTED, got=f"{type(error).__name__}: {error}"[:200], fix=AGAIN) from None


def _missing(path: Path, name: str, found: list[str]) -> FileError:
    return FileError(str(path), expected=f"an array {name!r}", got=", ".join(map(repr, found))[:200] or "none")


# Version 5.


def _read_v5(path: Path, content: bytes, name: str) -> np.ndarray:
    try:
        from scipy.io import loadmat
    except ImportError:
        raise MissingExtraError("MATLAB files need SciPy", fix="Install it: pip install 'corenet[mat]'") from None
    order = "<" if content[126:128] == b"IM" else ">"
    found = []
    for element in _elements(content[_HEADER:], order, path):
        its_name = _check_matrix(element, order, wanted=name)
        found.append(its_name)
        if its_name == name:
            whole = content[:_HEADER] + struct.pack(f"{order}II", _MATRIX, len(element)) + element
            return np.asarray(loadmat(io.BytesIO(whole), variable_names=[name])[name])
    raise _missing(path, name, found)


def _elements(content: bytes, order: str, path: Path) -> Iterator[bytes]:
    """The contents of every matrix of a file, unpacked."""
    place = 0
    while place + 8 <= len(content):
        kind, length = struct.unpack_from(f"{order}II", content, place)
        part = content[place + 8 : place + 8 + length]
        if len(part) < length:
            raise ValueError(f"an element of {length:,} bytes where {len(part):,} are left")
        place += 8 + length
        if kind == _PACKED:
            unpack = zlib.decompressobj()
            kind, length = struct.unpack(f"{order}II", unpack.decompress(part, 8))
            check_unpacked(path, "an element", length, len(part))
            part = unpack.decompress(unpack.unconsumed_tail, min(length, MAX_DEFLATE * len(part)) + 1)
            if len(part) != length:
                raise ValueError(f"an element of {length:,} bytes that unpacks to {len(part):,} or more")
        if kind == _MATRIX:
            yield part


def _check_matrix(matrix: bytes, order: str, wanted: str) -> str:
    """The name of a matrix; of the one that is wanted, all sizes must agree."""
    parts = _parts(matrix, order)
    _, flags = next(parts)
    _, dimensions = next(parts)
    _, label = next(parts)
    name = label.decode("latin-1")
    if name == wanted:
        (word,) = struct.unpack_from(f"{order}I", flags)
        shape = struct.unpack(f"{order}{len(dimensions) // 4}i", dimensions)
        if word & 0xFF not in _CLASSES:
            raise ValueError(f"{name} is no array of numbers (class {word & 0xFF})")
        if min(shape, default=-1) < 0:
            raise ValueError(f"{name} has the shape {shape}")
        for _ in range(2 if word & _COMPLEX else 1):
            kind, numbers = next(parts)
            if kind not in _BYTES or len(numbers) != math.prod(shape) * _BYTES[kind]:
                raise ValueError(f"{name} of shape {shape} has {len(numbers):,} bytes of numbers")
    return name


def _parts(matrix: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Type and contents of a matrix's parts; short ones share the eight bytes of their tag."""
    place = 0
    while place + 8 <= len(matrix):
        kind, length = struct.unpack_from(f"{order}II", matrix, place)
        if kind >> 16:
            kind, length, start, end = kind & 0xFFFF, kind >> 16, place + 4, place + 8
        else:
            start, end = place + 8, place + 8 + (length + 7) // 8 * 8
        if start + length > min(end, len(matrix)):
            raise ValueError(f"a part of {length:,} bytes where {len(matrix) - start:,} are left")
        yield kind, matrix[start : start + length]
        place = end
    raise ValueError("a matrix that ends too early")


# Version 7.3.


def _read_hdf5(path: Path, name: str) -> np.ndarray:
    try:
        import h5py
    except ImportError:
        raise MissingExtraError(
            "MATLAB files of v7.3 need h5py", fix="Install it: pip install 'corenet[mat]'"
        ) from None
    with h5py.File(path, "r") as file:
        if not isinstance(file.get(name, getlink=True), h5py.HardLink):  # others may lead to other files
            raise _missing(path, name, [key for key in file if not key.startswith("#")])
        data: Any = file[name]
        if not isinstance(data, h5py.Dataset) or data.dtype.kind not in "biuf" or data.is_virtual or data.external:
            raise ValueError(f"{name} is no array of numbers of its own")
        claim = f"{name}, {' × '.join(map(str, data.shape[::-1]))} {data.dtype}"
        check_unpacked(path, claim, data.nbytes, data.id.get_storage_size())
        return np.ascontiguousarray(np.transpose(data[()]))  # MATLAB's first index is the fastest, HDF5's the last
