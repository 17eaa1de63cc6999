"""corenet predict: what a saved model makes of images in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..datasets.images import read_image
from ..train import Trainer, load
from ..train.model_file import load_model
from . import options
from .output import print_json


def predict(model: Path, images: list[Path], *, top: int, kernels: str, json: bool) -> None:
    """Print the most probable classes of each image."""
    options.count("--top", top)
    path = options.model_path(model)
    trainer = load(path, workers=1, kernels=kernels)
    h, w, c = load_model(path)[0].input_shape
    pixels = [read_image(image, (h, w, c)) for image in images]
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
