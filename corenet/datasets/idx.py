"""IDX, the file format of MNIST: a header of a few bytes, then the numbers.

    0 0  type  ndim    size of each dimension (uint32 each)    values, all big-endian, last index fastest
    ──── ────  ────    ──────────────────────────────────────  ──────────────────────────────────────────
    2 B   1 B   1 B                 4 B · ndim                      product of the sizes · bytes of the type

The header's claim is compared with the bytes that are there before any of them is kept (`claims.py`), and a compressed
file is unpacked piece by piece and never further than one byte past its claim. So memory is bounded by the data that
exists, not by what a header says.
"""

import gzip
import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import DataError, FileError
from .arrays import from_arrays, numbered
from .claims import AGAIN, check_memory, check_unpacked, regular_file, wrong_kind
from .dataset import Dataset, normalisation

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: "i2", 0x0C: "i4", 0x0D: "f4", 0x0E: "f8"}
CODES = {np.dtype(type_): code for code, type_ in TYPES.items()}
MAX_DIMS = 4

# Without names, the number of classes is the largest label + 1. A label in the millions is then no class but a
# mistake (an id, a time, a price), and would ask for a net with millions of outputs.
MAX_UNNAMED_CLASSES = 65_536

_GZIP = b"\x1f\x8b"
_PIECE = 1 << 20  # bytes unpacked at a time

# The part of a name before the separator and "idx3-ubyte" or "idx1-ubyte". The separator is "-" as published and "."
# after some unpackers; 4 dimensions are images with channels.
_SPLITS = {"train": ("train-images", "train-labels"), "test": ("t10k-images", "t10k-labels")}


_BEGINNING = f" (first bytes 00 00, then one of {', '.join(f'{code:02x}' for code in TYPES)}, then 1 to {MAX_DIMS})"


def read_idx(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read an IDX file, raw or gzip whatever its name, to an array in native byte order; FileError if not sound."""
    path = Path(path)
    size = regular_file(path, "an IDX file")
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=file) as stream:
                    return _parse(stream, path, size, packed)  # type: ignore[arg-type]
            return _parse(file, path, size, packed)
    except FileError:
        raise
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileError(str(path), expected="a sound gzip file", got=f"'{error}'", fix=AGAIN) from None
    except (OSError, ValueError) as error:  # no permission, a disk error; a NUL in the name
        raise FileError(str(path), expected="a readable IDX file", got=f"'{error}'") from None


def _parse(stream: IO[bytes], path: Path, file_size: int, packed: bool) -> NDArray[Any]:
    head = stream.read(4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in TYPES:
        raise wrong_kind(path, "an IDX file", head + stream.read(60), _BEGINNING)
    dtype, ndim = np.dtype(TYPES[head[2]]), head[3]
    if not 1 <= ndim <= MAX_DIMS:
        raise FileError(str(path), expected=f"1 to {MAX_DIMS} dimensions", got=f"{ndim} in its header")
    dims = stream.read(4 * ndim)
    if len(dims) < 4 * ndim:
        expected = f"a header of {4 + 4 * ndim} bytes for {ndim} dimensions"
        raise FileError(str(path), expected=expected, got=f"{4 + len(dims)} bytes in all", fix=AGAIN)
    shape = tuple(int.from_bytes(dims[i : i + 4], "big") for i in range(0, 4 * ndim, 4))
    claim = " × ".join(f"{n:,}" for n in shape) + f" {dtype.name}"
    if 0 in shape:
        raise FileError(str(path), expected="at least one value", got=f"{claim} in its header")

    header, size = 4 + 4 * ndim, math.prod(shape) * dtype.itemsize
    if not packed and header + size != file_size:
        expected = f"{header + size:,} bytes ({header} + {claim}, from its header)"
        fix = AGAIN if file_size < header + size else "There are trailing bytes: the header is wrong, or the file."
        raise FileError(str(path), expected=expected, got=f"{file_size:,} bytes", fix=fix)
    if packed:
        check_unpacked(path, claim, size, file_size)
    else:
        check_memory(path, claim, size)

    values = bytearray()
    while len(values) < size and (piece := stream.read(min(_PIECE, size - len(values)))):
        values += piece
    if len(values) < size:
        raise FileError(str(path), expected=f"{size:,} bytes of values ({claim})", got=f"{len(values):,}", fix=AGAIN)
    if stream.read(1):  # also makes gzip compare its checksum
        raise FileError(str(path), expected=f"{size:,} bytes of values ({claim})", got="more: trailing bytes")
    array = np.frombuffer(values, dtype.newbyteorder(">")).reshape(shape)
    if np.little_endian:
        array = array.byteswap(inplace=True).view(dtype)
    return array


def write_idx(path: str | os.PathLike[str], array: ArrayLike) -> None:
    """Write 1 to 4 dimensions of a dtype in `CODES`, gzip if named .gz; DataError for others, FileError.

    The same array gives the same bytes, at any time; a file of that name is replaced at once or not at all.
    """
    path, array = Path(path), np.asarray(array)
    code = CODES.get(array.dtype.newbyteorder("="))
    if code is None:
        expected = "one of " + ", ".join(dtype.name for dtype in CODES)
        raise DataError(f"cannot write {path}", expected=expected, got=array.dtype, fix="Convert with x.astype(...).")
    if not 1 <= array.ndim <= MAX_DIMS or not array.size or max(array.shape) >= 1 << 32:
        expected = f"1 to {MAX_DIMS} dimensions, none of them 0"
        raise DataError(f"cannot write {path}", expected=expected, got=f"shape {array.shape}")
    head = bytes((0, 0, code, array.ndim)) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    data = head + array.astype(array.dtype.newbyteorder(">")).tobytes()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "xb") as file:
            if path.suffix == ".gz":
                # No name and no time inside, or each build would give another file.
                with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=9, mtime=0) as stream:
                    stream.write(data)
            else:
                file.write(data)
        os.replace(temporary, path)
    except OSError as error:
        raise FileError(f"cannot write {path}", got=f"'{error.strerror or error}'") from None
    finally:
        temporary.unlink(missing_ok=True)


def from_idx(
    folder: str | os.PathLike[str], *, classes: Sequence[str] | None = None, name: str | None = None
) -> tuple[Dataset, Dataset]:
    """Read (train, test) from the four IDX files of a folder, named as MNIST's are; FileError, DataError.

    Labels are class numbers, and `classes` their names; without them, the numbers. Both sets are normalised by the mean
    and standard deviation of the training images.
    """
    folder = Path(folder)
    paths = {split: find_split(folder, split) for split in _SPLITS}  # all four before reading tens of megabytes
    name = folder.resolve().name if name is None else name
    sets = []
    for split, (images, labels) in paths.items():
        sets.append(from_arrays(read_idx(images), read_idx(labels), classes=classes, name=f"{name}, {split}"))
    train, test = sets
    if train.sample_shape != test.sample_shape:
        raise DataError(f"images of {folder}", expected=f"{train.sample_shape} as in training", got=test.sample_shape)
    names = _numbers(sets) if classes is None else train.classes
    for s in sets:
        _check_labels(s, len(names))
    mean, std = normalisation(train.x)
    train, test = (replace(s, name=name, classes=names, mean=mean, std=std) for s in sets)
    return train, test


def _numbers(sets: Sequence[Dataset]) -> tuple[str, ...]:
    labels = [s.y for s in sets if s.y is not None and s.y.dtype == np.int64]
    n = 1 + max((int(y.max()) for y in labels), default=-1)  # of both: one split may lack the last class
    if n > MAX_UNNAMED_CLASSES:
        fix = "Number the classes 0, 1, 2, ... without gaps: np.unique(y, return_inverse=True)[1]."
        expected = f"class numbers up to {MAX_UNNAMED_CLASSES - 1:,}"
        raise DataError(f"labels of {sets[0].name!r}", expected=expected, got=n - 1, fix=fix)
    return numbered(n)


def _check_labels(data: Dataset, n: int) -> None:
    y = data.y
    if y is not None and y.dtype == np.int64 and y.max() >= n:
        raise DataError(
            f"label out of range in {data.name!r}",
            expected=f"labels from 0 to {n - 1}, for {n} classes",
            got=f"{y.max()} at index {y.argmax()}",
            fix="Labels count from 0; the list of classes needs a name for each.",
        )


def find_split(folder: Path, split: str) -> tuple[Path, Path]:
    """Paths of the images and the labels of split "train" or "test" in `folder`; FileError naming what is missing."""
    if not folder.is_dir():
        got = "a file" if folder.exists() else "no such folder"
        raise FileError(str(folder), expected="a folder with IDX files", got=got, fix=_LAYOUT)
    images, labels = _SPLITS[split]
    return _find(folder, images, (3, 4)), _find(folder, labels, (1,))


def _find(folder: Path, stem: str, dims: tuple[int, ...]) -> Path:
    for d in dims:
        for separator in "-.":
            for ending in ("", ".gz"):
                path = folder / f"{stem}{separator}idx{d}-ubyte{ending}"
                if path.is_file():
                    return path
    raise FileError(f"no {stem} in {folder}", expected=f"{stem}-idx{dims[0]}-ubyte or the same with .gz", fix=_LAYOUT)


_LAYOUT = (
    "Looked for: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, "
    "each raw or .gz."
)
