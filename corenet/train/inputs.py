"""Whether data can be used with a net: each mistake is one error, before any work and before anything is decided."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..datasets import Dataset, as_dataset
from ..engine import make_plan
from ..errors import DataError, ShapeError
from ..nn import Layer
from ..nn.loss import Loss

Shape = tuple[int, ...]


def labelled(net: Layer, loss: Loss, given: Any, shape: Shape | None) -> tuple[Dataset, np.ndarray]:
    """A data set of images of that shape (None: any that the net takes), and its targets as the loss takes them."""
    data = replace(as_dataset(given))  # which checks again: its arrays may have been changed in place
    if data.y is None:
        expected = "a label, or a value, for each image"
        raise DataError(f"{data.name!r} has no labels", expected=expected, got="images only")
    check_images(net, loss, data, shape)
    outputs = make_plan(net, data.sample_shape, 1, loss=loss).output_shape
    return data, loss.targets(data.y, outputs, data.name)


def check_images(net: Layer, loss: Loss, data: Dataset, shape: Shape | None) -> None:
    """Raise ShapeError unless the images are of that shape or, where none is given, such as the net takes."""

    def problem(got: Shape) -> Exception | None:
        if shape is None:
            try:
                make_plan(net, got, 1, loss=loss)
            except Exception as error:  # a layer of the user's may raise anything
                return error
        elif got != shape:
            alone = (len(data), *got) == (*shape, 1)
            expected = f"{shape} (height, width, channels), as this net was made for"
            fix = "One image alone is x[None]" if alone else "Resize the images, or make a new Trainer"
            return ShapeError(f"images of {data.name!r}", expected=expected, got=got, fix=fix)
        return None

    error = problem(data.sample_shape)
    if error is None:
        return
    channels, *size = data.sample_shape
    turned = *size, channels
    if channels < min(size) and problem(turned) is None:
        expected, got = "(height, width, channels)", f"{data.sample_shape}, which would fit as {turned}"
        fix = "Images are channels-last: x.transpose(0, 2, 3, 1)"
        raise ShapeError(f"images of {data.name!r}", expected=expected, got=got, fix=fix) from error
    raise error


def check_some_count(loss: Loss, data: Dataset, targets: np.ndarray) -> None:
    """Raise DataError where the loss counts no label at all, and would be a mean of nothing."""
    if not loss.weights(targets).any():
        got = f"labels that all count nothing in {loss!r}"
        raise DataError(f"nothing to learn from {data.name!r}", expected="some labels that count", got=got)
