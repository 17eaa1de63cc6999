"""corenet evaluate: how good a saved model is, in all and class by class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from . import options
from .output import print_json
from .source import Source, check_images, source_of


def evaluate(
    model: Path, dataset: str | None, *, workers: str, threads: int, share_cores: bool, kernels: str, json: bool
) -> None:
    """Evaluate a model on the test part of a data set."""
    path = options.model_path(model)
    count = options.count_or_auto("--workers", workers)
    settings = {"workers": count, "threads": threads, "share_cores": share_cores}
    trainer, about = options.load_classifier(path, kernels=options.kernels(kernels), **settings)
    source = source_of(path, about.data) if dataset is None else Source(dataset)
    with trainer:
        test_set = source.read()[1]
        check_images(source, test_set, about.input_shape, f"the model {path}", "Give the DATASET it was made for")
        scores = trainer.evaluate(test_set)
        predicted = trainer.predict(test_set).argmax(axis=1)
    assert test_set.y is not None
    result = {
        "model": str(path),
        "dataset": source.name,
        "dataset_name": test_set.name,
        "images": len(test_set),
        **scores,
        "classes": _by_class(predicted, test_set.y, test_set.classes),
    }
    if json:
        print_json(result)
    else:
        _tell(result)


def _by_class(predicted: np.ndarray, y: np.ndarray, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Each class that occurs: its images, and the share of them that was recognised."""
    rows = []
    for label, name in enumerate(names):
        of_class = y == label
        if of_class.any():
            hits = float((predicted[of_class] == label).mean())
            rows.append({"class": name, "images": int(of_class.sum()), "accuracy": hits})
    return rows


def _tell(result: dict[str, Any]) -> None:
    print(f"{result['dataset_name']}, {result['images']:,} test images")
    print(f"accuracy {result['accuracy']:.2%}, loss {result['loss']:.4f}")
    width = max(len("class"), *(len(row["class"]) for row in result["classes"]))
    print(f"\n{'class':{width}}  {'images':>7}  {'accuracy':>8}")
    for row in result["classes"]:
        print(f"{row['class']:{width}}  {row['images']:7,}  {row['accuracy']:8.2%}")
