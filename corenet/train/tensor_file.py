"""Files of named arrays: safetensors, with what they are as JSON in the header, written in one step.

    | length, 8 bytes | JSON: each array's dtype, shape and place; format, description, checksum | arrays ... |

No code is in such a file and nothing in it is executed. What its header claims is checked against its size before
anything of that size is allocated, and the checksum covers description and arrays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import FileError
from .files import write_atomically

_MAX_HEADER = 100_000_000  # bytes, as safetensors has it: more than it would write
# What a damaged file may raise, besides errors of corenet, where it is read and where something is built from it.
DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

Arrays = dict[str, np.ndarray]


def write_arrays(path: str | Path, kind: str, version: int, description: dict[str, Any], arrays: Arrays) -> None:
    """Write a file of that kind, such as "model". Raises FileError; then an older file is as it was."""
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps(description)
    metadata = {"format": f"corenet {kind} {version}", "corenet": text, "sha256": _checksum(text, arrays)}
    write_atomically(path, save(arrays, metadata=metadata))


def read_arrays(
    path: str | Path, kind: str, version: int, check: Callable[[dict[str, Any]], Any], fix: str
) -> tuple[Any, Arrays]:
    """What `check` makes of a file's description, before the rest is read, and its arrays.

    Raises FileError naming what is wrong with the file, and with `fix`, what to do.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = Path(path)
    if not path.is_file():  # a pipe or a device might never end
        raise FileError(f"cannot read {kind} {path}", got="a folder" if path.is_dir() else "no such file", fix=fix)
    try:
        with path.open("rb") as file:
            metadata = _read_header(file, path.stat().st_size, kind, version)
            result = check(json.loads(metadata["corenet"]))
            file.seek(0)
            arrays = load(file.read())
        if metadata.get("sha256", "") != _checksum(metadata["corenet"], arrays):
            raise ValueError("a damaged file (its checksum is another)")
    except OSError as error:
        raise FileError(f"cannot read {kind} {path}", got=error.strerror or str(error)) from error
    except (*DAMAGE, SafetensorError) as error:
        got = str(error) if type(error) is ValueError else f"a damaged file ({type(error).__name__}: {error})"
        expected = f"a safetensors file of format 'corenet {kind} {version}'"
        raise FileError(f"{path} is not a corenet {kind}", expected=expected, got=got, fix=fix) from error
    return result, arrays


def _checksum(text: str, arrays: Arrays) -> str:
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _read_header(file: BinaryIO, size: int, kind: str, version: int) -> dict[str, str]:
    """Check the header before any of the rest is read. Raises ValueError and its like."""
    start = file.read(16)
    length = int.from_bytes(start[:8], "little")
    if start[8:9] != b"{":
        raise ValueError(f"a file that begins with {start!r}" if start else "an empty file")
    if length > min(_MAX_HEADER, size - 8):
        raise ValueError("a file cut short")
    file.seek(8)
    header = json.loads(file.read(length))
    metadata = header.get("__metadata__", {})
    found = metadata.get("format")
    if found != f"corenet {kind} {version}":
        family, _, number = (found or "").rpartition(" ")
        if family == f"corenet {kind}" and number.isdecimal() and int(number) > version:
            raise ValueError(f"format {found!r}, of a later corenet")
        raise ValueError(f"format {found!r}" if found else "a safetensors file of something else")
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    whole = 8 + length + max(ends, default=0)
    if size != whole:
        raise ValueError(f"a damaged file, of {size:,} bytes where {whole:,} should be")
    return metadata
