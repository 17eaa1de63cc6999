"""The model file: all parameters by name, and what else prediction needs: net, input shape, scaling, class names."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..engine import Layout
from ..errors import DataError, ShapeError
from .tensor_file import Arrays, read_arrays, write_arrays

VERSION = 1
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

    @classmethod
    def of(cls, values: dict[str, Any]) -> ModelInfo:
        """From JSON. Raises ValueError, and what else damage may cause, for what it cannot be."""
        info = cls(**{**values, **{name: tuple(values[name]) for name in _TUPLES}})
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


def save_model(path: str | Path, info: ModelInfo, tensors: Arrays) -> None:
    """Write a model file in one step. Raises FileError."""
    write_arrays(path, "model", VERSION, asdict(info), tensors)


def load_model(path: str | Path) -> tuple[ModelInfo, Arrays]:
    """Read a model file. Raises FileError naming what is wrong with it."""
    return read_arrays(path, "model", VERSION, ModelInfo.of, "Use a model.safetensors that corenet wrote")


def state_of(layout: Layout, arrays: Arrays, what: str, overflow: bool = False) -> np.ndarray:
    """The state vector of all parameters by name. Raises ShapeError or DataError where one does not fit.

    overflow: numbers need not be finite.
    """
    wanted = {entry.name: entry.shape for entry in layout.entries if entry.size}
    got = {name: array.shape for name, array in arrays.items()}
    for name in sorted(wanted.keys() | got.keys()):
        if wanted.get(name) != got.get(name):
            expected, found = wanted.get(name, "none of that name"), got.get(name, "none")
            raise ShapeError(f"parameter {name!r} of {what}", expected=expected, got=found)
    state = np.zeros(layout.size, layout.dtype)
    for name, place in layout.arrays(state).items():
        array = arrays[name]
        finite = overflow or bool(np.isfinite(array).all())
        if array.dtype != layout.dtype or not finite:
            kind = f"{array.dtype}, " + ("finite" if finite else "some infinite or NaN")
            raise DataError(f"parameter {name!r} of {what}", expected=f"finite {layout.dtype}", got=kind)
        place[:] = array
    return state
