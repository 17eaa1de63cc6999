"""The model file: a safetensors file with every parameter by name, and the net's description as JSON in its header.

It holds all that prediction needs (net, input shape, scaling, class names) and no code: nothing in it is executed.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from ..errors import FileError
from .files import write_atomically

FORMAT = "corenet model 1"
_MAX_HEADER = 16 << 20  # bytes
# What a damaged file may raise, besides errors of corenet, where it is read and where a net is built from it.
DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_TUPLES = ("input_shape", "mean", "std", "classes")  # lists, in JSON


@dataclass(frozen=True)
class ModelInfo:
    """All of a model but its numbers."""

    net: dict[str, Any]
    input_shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: tuple[str, ...]
    loss: dict[str, Any]
    optimizer: dict[str, Any]
    chunk: int | Literal["auto"]
    seed: int
    data: str


def save_model(path: str | Path, info: ModelInfo, tensors: dict[str, np.ndarray]) -> None:
    """Write a model file in one step. Raises FileError."""
    from safetensors.numpy import save

    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    write_atomically(path, save(tensors, metadata={"format": FORMAT, "corenet": json.dumps(asdict(info))}))


def load_model(path: str | Path) -> tuple[ModelInfo, dict[str, np.ndarray]]:
    """Read a model file. Raises FileError naming what is wrong with it."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = Path(path)
    if not path.is_file():  # a pipe or a device might never end
        raise FileError(f"cannot read model {path}", got="a folder" if path.is_dir() else "no such file")
    try:
        with path.open("rb") as file:
            info = _read_header(file, path.stat().st_size)
            file.seek(0)
            tensors = load(file.read())
    except OSError as error:
        raise FileError(f"cannot read model {path}", got=error.strerror or str(error)) from error
    except (*DAMAGE, SafetensorError) as error:
        got = str(error) if type(error) is ValueError else f"a damaged file ({type(error).__name__}: {error})"
        expected = f"a safetensors file of format {FORMAT!r}"
        fix = "Use a model.safetensors that corenet wrote"
        raise FileError(f"{path} is not a corenet model", expected=expected, got=got, fix=fix) from error
    return info, tensors


def _read_header(file: BinaryIO, size: int) -> ModelInfo:
    """Check the header before any of the rest is read. Raises ValueError and its like."""
    start = file.read(16)
    length = int.from_bytes(start[:8], "little")
    if start[8:9] != b"{":
        raise ValueError(f"a file that begins with {start!r}" if start else "an empty file")
    if length > min(_MAX_HEADER, size - 8):
        raise ValueError("a file cut short")
    file.seek(8)
    metadata = json.loads(file.read(length)).get("__metadata__", {})
    found = metadata.get("format")
    if found != FORMAT:
        raise ValueError(f"format {found!r}" if found else "a safetensors file of something else")
    values: dict[str, Any] = json.loads(metadata["corenet"])
    info = ModelInfo(**{**values, **{name: tuple(values[name]) for name in _TUPLES}})
    channels = info.input_shape[-1]
    fine = {
        "input_shape": len(info.input_shape) == 3 and all(type(n) is int and n > 0 for n in info.input_shape),
        "mean": len(info.mean) in (1, channels) and all(math.isfinite(value) for value in info.mean),
        "std": len(info.std) in (1, channels) and all(math.isfinite(value) and value > 0 for value in info.std),
        "classes": all(isinstance(name, str) for name in info.classes),
        "data": isinstance(info.data, str),
    }
    for key, good in fine.items():
        if not good:
            raise ValueError(f"a header with {key} = {values[key]!r:.80}")
    return info
