"""Which data set a command works on: named, a folder, or the one a model was trained on."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from .. import datasets
from ..datasets import Dataset
from ..datasets.builtin import BY_NAME
from ..errors import ConfigError, ShapeError
from ..models import INPUT_SHAPES, classifies
from .run_folder import HISTORY_FILE

# Known without reading the files, so that the workers can start before.
_SHAPES = {"digits": (8, 8, 1), "fashion-mnist": (28, 28, 1), "fashion-mnist-subset": (28, 28, 1)}
_MODELS = {(8, 8, 1): "digits_cnn", (28, 28, 1): "keras_mnist"}


class Source:
    """A data set by name or folder, read when it is first needed. ConfigError if it is neither."""

    def __init__(self, given: str):
        self.given = given
        self._sets: tuple[Dataset, Dataset] | None = None
        key = given.lower().replace("_", "-")
        self._known = key if key in BY_NAME else None
        if not self._known and not os.path.exists(given):
            self.read()  # raises, and knows why

    @property
    def name(self) -> str:
        """What it is found by, whatever the current folder."""
        return self._known or str(Path(self.given).resolve())

    @property
    def slug(self) -> str:
        """A part of a file name."""
        return Path(self.name).name

    def read(self) -> tuple[Dataset, Dataset]:
        """The training and the test set."""
        if self._sets is None:
            self._sets = datasets.load(self.given)
        return self._sets

    def default_model(self) -> str:
        """The model for these images. Raises ConfigError if there is none."""
        shape = _SHAPES.get(self._known or "") or self.read()[0].sample_shape
        if shape not in _MODELS:
            what = f"no default model for images {sizes(shape)}"
            takers = [name for name, taken in INPUT_SHAPES.items() if taken == shape and classifies(name)]
            raise ConfigError(what, fix=f"Give --model, {' or '.join(takers)}" if takers else "Make a net in Python")
        return _MODELS[shape]


def source_of(model: Path, trained_on: str) -> Source:
    """The data set a model was trained on: as the history beside it says, else the one of that name."""
    try:
        run = json.loads((model.parent / HISTORY_FILE).read_text())["run"]
        return Source(run["dataset"]) if run["dataset_name"] == trained_on else _named(trained_on)
    except (OSError, ValueError, KeyError, TypeError):  # no history, or another program's
        return _named(trained_on)


def _named(trained_on: str) -> Source:
    for name in BY_NAME:
        source = Source(name)
        if source.read()[0].name == trained_on:
            return source
    raise ConfigError(f"where the data set {trained_on!r} of this model is", got="no record", fix="Give the DATASET")


def check_images(source: Source, data: Dataset, shape: Sequence[int], user: str, fix: str) -> None:
    """Raise ShapeError unless the images are of the shape that their user takes."""
    if data.sample_shape != tuple(shape):
        what = f"images of {source.given} for {user}"
        raise ShapeError(what, expected=sizes(shape), got=sizes(data.sample_shape), fix=fix)


def sizes(shape: Sequence[int]) -> str:
    """Such as 28×28×1."""
    return "×".join(map(str, shape))
