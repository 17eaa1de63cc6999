"""From option texts to settings, checked before anything is started."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

from ..engine import make_plan
from ..errors import ConfigError, FileError
from ..kernels import backend
from ..nn import CrossEntropy
from ..train import Trainer, load
from ..train.model_file import ModelInfo, load_model

MODEL_FILE = "model.safetensors"


def count(option: str, value: int) -> int:
    """A number of at least 1."""
    if value < 1:
        raise ConfigError(option, expected="a number of at least 1", got=value)
    return value


def count_or_auto(option: str, text: str) -> int | Literal["auto"]:
    """A number of at least 1, or "auto"."""
    if text == "auto":
        return "auto"
    try:
        return count(option, int(text))
    except ValueError:
        raise ConfigError(option, expected="auto or a number of at least 1", got=repr(text)) from None


def kernels(name: str) -> str:
    """Kernels that can run here, as far as that is known without starting a worker."""
    if name != "auto":  # asked for by name; "auto" takes what there is, so that need not be looked for here
        backend.select(name)
    return name


def rate(option: str, value: float) -> float:
    """A finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(option, expected="a number above 0", got=value)
    return value


def model_path(given: Path) -> Path:
    """The model file that a path means: itself, or the one in a run folder."""
    path = given / MODEL_FILE if given.is_dir() else given
    if path.exists():
        return path
    if given.is_dir():
        raise FileError(f"no {MODEL_FILE} in {given}", fix="Give a folder that corenet train wrote, or a model file")
    raise FileError(str(given), expected="a run folder or a model file", got="no such file or folder")


def load_classifier(path: Path, **settings: Any) -> tuple[Trainer, ModelInfo]:
    """The Trainer of a model file whose net gives one class per image, which is what commands can show."""
    trainer, info = load(path, **settings), load_model(path)[0]
    output = make_plan(trainer.net, info.input_shape, 1).output_shape
    if not isinstance(trainer.loss, CrossEntropy) or len(output) != 1:
        got, fix = f"outputs of shape {output} for loss {trainer.loss.name!r}", "Use corenet.load(path) in Python"
        raise ConfigError(f"the model {path}", expected="one class per image", got=got, fix=fix)
    return trainer, info
