"""Arrays from MATLAB's files: v5 (v6, v7) through SciPy, v7.3, which is HDF5, through h5py.

What is given to SciPy is not the file but the one element of it that is wanted, unpacked here within bounds, after its
sizes have been found to agree; of the others, only the beginning is unpacked, for their names:

    file      header of 128 bytes │ element │ element │ …         an element: type, bytes, contents
    element   15: a packed element, or 14: a matrix  │ flags │ dimensions │ name │ numbers │

HDF5 unpacks a chunk to whatever is in it, whatever its size should be. So all are unpacked here first, within bounds.
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
from .claims import AGAIN, check_memory, check_unpacked, regular_file, wrong_kind

_WANTED = "a MATLAB file"
_HEADER, _HDF5 = 128, b"\x89HDF\r\n\x1a\n"
_MATRIX, _PACKED = 14, 15
# Bytes of a number by its type in the file, and by the class of the array.
_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}
_CLASSES = {6: 8, 7: 4, 8: 1, 9: 1, 10: 2, 11: 2, 12: 4, 13: 4, 14: 8, 15: 8}
_COMPLEX = 0x800
_BEGINNING = 4096  # bytes of a matrix with its flags, dimensions and name, for which MATLAB has 63 characters
_DEFLATE, _SHUFFLE = 1, 2  # HDF5's numbers of what MATLAB packs with


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
        check_memory(path, "of the file", size)
        return _read_v5(path, path.read_bytes(), name)
    except (FileError, MissingExtraError):
        raise
    except Exception as error:  # whatever damage makes SciPy and h5py raise, it means the same to the user
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
    for kind, part in _elements(content, order):
        packed, length, beginning = kind == _PACKED, len(part), part[:_BEGINNING]
        if packed:
            kind, length, beginning = _unpack(part, order, _BEGINNING)
        if kind != _MATRIX:
            continue
        found.append(_name(beginning, order))
        if found[-1] != name:
            continue
        if packed:
            check_unpacked(path, "an element", length, len(part))
            _, _, part = _unpack(part, order, length + 1)
            if len(part) != length:
                raise ValueError(f"an element of {length:,} bytes that unpacks to {len(part):,} or more")
        _check_matrix(part, order, name)
        whole = content[:_HEADER] + struct.pack(f"{order}II", _MATRIX, length) + part
        return np.asarray(loadmat(io.BytesIO(whole), variable_names=[name])[name])
    raise _missing(path, name, found)


def _elements(content: bytes, order: str) -> Iterator[tuple[int, memoryview]]:
    """Type and contents of every element of a file."""
    place, view = _HEADER, memoryview(content)
    while place + 8 <= len(view):
        kind, length = struct.unpack_from(f"{order}II", view, place)
        part = view[place + 8 : place + 8 + length]
        if len(part) < length:
            raise ValueError(f"an element of {length:,} bytes where {len(part):,} are left")
        place += 8 + length
        yield kind, part


def _unpack(packed: memoryview, order: str, limit: int) -> tuple[int, int, memoryview]:
    """Type and length that the element in a packed one claims, and the first `limit` bytes of its contents."""
    unpack = zlib.decompressobj()
    kind, length = struct.unpack(f"{order}II", unpack.decompress(packed, 8))
    return kind, length, memoryview(unpack.decompress(unpack.unconsumed_tail, limit))


def _name(matrix: memoryview, order: str) -> str:
    parts = _parts(matrix, order)
    next(parts), next(parts)  # flags, dimensions
    return bytes(next(parts)[1]).decode("latin-1")


def _check_matrix(matrix: memoryview, order: str, name: str) -> None:
    """Raise ValueError unless it is one of numbers, and all its sizes agree."""
    parts = _parts(matrix, order)
    (_, flags), (_, dimensions), _ = next(parts), next(parts), next(parts)
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


def _parts(matrix: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
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
        if not isinstance(data, h5py.Dataset) or data.is_virtual or data.external:
            raise ValueError(f"{name} is no array of numbers of its own")
        is_complex = data.dtype.names == ("real", "imag") and data.dtype["real"].kind == data.dtype["imag"].kind == "f"
        if data.dtype.kind not in "biuf" and not is_complex:
            raise ValueError(f"{name} is no array of numbers of its own")
        if data.attrs.get("MATLAB_empty"):
            raise ValueError(f"{name} is empty")  # what is there are the lengths of an array of nothing
        claim = f"{name}, {' × '.join(map(str, data.shape[::-1]))} {data.dtype}"
        size = path.stat().st_size
        check_unpacked(path, claim, data.nbytes, min(data.id.get_storage_size(), size))
        if data.chunks:
            _check_chunks(path, data, size)
        values = data[()]
        if is_complex:
            values = values["real"] + 1j * values["imag"]
        return np.ascontiguousarray(np.transpose(values))  # MATLAB's first index is the fastest, HDF5's the last


def _check_chunks(path: Path, data: Any, size: int) -> None:
    """Raise ValueError or FileError unless every chunk lies in the file and unpacks to a chunk's size."""
    settings = data.id.get_create_plist()
    filters = [settings.get_filter(number)[0] for number in range(settings.get_nfilters())]
    if filters not in ([], [_DEFLATE], [_SHUFFLE, _DEFLATE]):  # others may be libraries that the file names
        raise ValueError(f"an array packed in another way than MATLAB's (HDF5's filters {filters})")
    length = math.prod(data.chunks) * data.dtype.itemsize
    found: list[Any] = []
    data.id.chunk_iter(found.append)
    check_unpacked(path, "a chunk", length, min(size, max((chunk.size for chunk in found), default=0)))
    if sum(chunk.size for chunk in found) > size:
        raise ValueError("chunks of more bytes than the file")
    for chunk in found:
        _, content = data.id.read_direct_chunk(chunk.chunk_offset)
        if filters and not chunk.filter_mask >> len(filters) - 1 & 1:  # a bit says that a filter was left out
            content = zlib.decompressobj().decompress(content, length + 1)
        if len(content) != length:
            raise ValueError(f"a chunk of {length:,} bytes that has {len(content):,} or more")
