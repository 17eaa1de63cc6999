"""The model file: a safetensors file with every parameter by name, and the net's description as JSON in its header.

It holds all that prediction needs (net, input shape, scaling, class names) and no code: nothing in it is executed.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import CorenetError, FileError
from .files import write_atomically

FORMAT = "corenet model 1"
_MAX_HEADER = 16 << 20  # bytes


@dataclass(frozen=True)
class ModelInfo:
    """All of a model but its numbers."""

    net: dict[str, Any]
    input_shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: tuple[str, ...]
    loss: str
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
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read model {path}", got=error.strerror or str(error)) from error
    fix = "Use a model.safetensors that corenet wrote"
    wrong = f"{path} is not a corenet model"
    try:
        (length,) = struct.unpack_from("<Q", content)
        if length > min(_MAX_HEADER, len(content) - 8):
            raise ValueError("truncated, or no safetensors file")
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
        found = metadata.get("format")
        if found != FORMAT:
            raise ValueError(f"format {found!r}" if found else "a safetensors file of something else")
        info = ModelInfo(**json.loads(metadata["corenet"]))
        tensors = load(content)
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError, SafetensorError) as error:
        got = "a file too short" if isinstance(error, struct.error) else str(error)
        raise FileError(wrong, expected=f"a safetensors file of format {FORMAT!r}", got=got, fix=fix) from error
    except CorenetError as error:
        raise FileError(wrong, got=str(error), fix=fix) from error
    return info, tensors
