"""corenet predict: what a saved model makes of images in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..datasets import from_arrays
from ..datasets.idx import read_idx
from ..datasets.images import read_image
from ..errors import ConfigError, ShapeError
from ..train import Trainer
from . import options
from .output import print_json
from .source import sizes


def predict(model: Path, images: list[Path], *, top: int, index: int, kernels: str, json: bool) -> None:
    """Print the most probable classes of each image."""
    options.count("--top", top)
    path = options.model_path(model)
    trainer, about = options.load_classifier(path, workers=1, kernels=options.kernels(kernels))
    h, w, c = about.input_shape
    pixels = [_read(image, (h, w, c), index) for image in images]
    with trainer:
        probabilities = _probabilities(trainer, pixels)
    results = []
    for image, row in zip(images, probabilities, strict=True):
        best = np.argsort(-row, kind="stable")[:top]
        classes = [{"class": _name(trainer, label), "probability": float(row[label])} for label in best.tolist()]
        results.append({"image": str(image), "classes": classes})
    if json:
        print_json({"model": str(path), "images": results})
    else:
        _tell(results)


def _read(path: Path, shape: tuple[int, int, int], index: int) -> np.ndarray:
    """One image; out of an IDX file, which has its kind in its name, the one of that index."""
    if "idx" not in path.name or not path.is_file():
        return read_image(path, shape)
    images = from_arrays(read_idx(path), name=str(path))
    if not 0 <= index < len(images):
        raise ConfigError("--index", expected=f"0 to {len(images) - 1}, the images of {path}", got=index)
    if images.sample_shape != shape:
        raise ShapeError(str(path), expected=f"{sizes(shape)} pixels, as the net takes", got=sizes(images.sample_shape))
    return images.x[index]


def _probabilities(trainer: Trainer, pixels: list[np.ndarray]) -> list[np.ndarray]:
    """Class probabilities of each image; bytes and floats are scaled differently, so they stay apart."""
    rows: list[Any] = [None] * len(pixels)
    for dtype in sorted({image.dtype.str for image in pixels}):
        chosen = [index for index, image in enumerate(pixels) if image.dtype.str == dtype]
        for index, row in zip(chosen, trainer.predict(np.stack([pixels[i] for i in chosen])), strict=True):
            rows[index] = row
    return rows


def _name(trainer: Trainer, label: int) -> str:
    return trainer.classes[label] if label < len(trainer.classes) else str(label)


def _tell(results: list[dict[str, Any]]) -> None:
    width = max(len(result["image"]) for result in results)
    for result in results:
        found = ", ".join(f"{entry['class']} {entry['probability']:.1%}" for entry in result["classes"])
        print(f"{result['image']:{width}}  {found}")
