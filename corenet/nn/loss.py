"""Losses: the last step of a training plan, what targets it takes, and the numbers it reports.

All divide by what counts in the whole batch, never in a chunk: elements, or for cross-entropy the weights of the labels
that are not ignored. So the gradient does not depend on how a batch is cut, with masked labels, too.
"""

from __future__ import annotations

import difflib
import inspect
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..engine import Planner, Tensor
from ..errors import ConfigError, DataError
from ..kernels import losses
from ..kernels.losses import CORRECT, COUNTED, LOSS, METRICS, WEIGHT
from ..kernels.operation import Operation
from .layer import integer, number

IGNORED = -100  # the label of what does not count, as in PyTorch
BLOCK = 256  # samples scored together


class Loss(ABC):
    """Base of losses; subclasses keep their constructor's arguments as attributes of the same names."""

    name: ClassVar[str]
    operation: ClassVar[Operation]
    accuracy: ClassVar[bool]  # whether it knows hits
    target_dtype: ClassVar[str] = "float"

    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments, by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.arguments().items())})"

    def plan(self, p: Planner, x: Tensor) -> None:
        """Append the step that makes the gradient of x and the metrics. Raises ShapeError where x does not fit."""
        self.check_output(p, x.shape)
        if x.grad is None:
            p.fail(expected="a layer between images and loss", got="none", fix="Add Linear(…, outputs)")
        rows, elements = self.rows(x.shape), math.prod(self.target_shape(x.shape))
        data, grad = (p.view(buffer, (p.chunk, *rows)) for buffer in (x.data, x.grad))
        targets, sums = p.target(elements, self.target_dtype), p.buffer((p.chunk, METRICS), "float64")
        constants = self.constants(x.shape, p.dtype)
        p.forward(self.operation, data, targets, grad, sums, p.metrics, p.scale, *constants)

    def check_output(self, p: Planner, shape: tuple[int, ...]) -> None:  # noqa: B027, most take any
        """Call p.fail where the output of the net does not fit."""

    @abstractmethod
    def rows(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """How the operation sees an output of that shape."""

    def target_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a sample's targets for an output of that shape."""
        return shape

    def constants(self, shape: tuple[int, ...], dtype: Any) -> tuple[Any, ...]:
        """The operation's last arguments."""
        return ()

    @abstractmethod
    def targets(self, y: np.ndarray, shape: tuple[int, ...], name: str) -> np.ndarray:
        """A data set's y as (n, elements), checked against outputs of that shape. Raises DataError."""

    def weights(self, targets: np.ndarray) -> np.ndarray:
        """What each sample counts (n,) float64, from checked targets: the batch's loss is divided by the sum."""
        return np.full(len(targets), float(targets.shape[1]))

    def predictions(self, outputs: np.ndarray) -> np.ndarray:
        """What is predicted, from the net's outputs."""
        return outputs

    def scores(self, outputs: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Mean loss (and accuracy) of outputs (n, …) and checked targets, in double."""
        shape, total, metrics = outputs.shape[1:], np.zeros(METRICS), np.zeros(METRICS)
        constants = self.constants(shape, np.float64)
        with np.errstate(all="ignore"):  # outputs may be infinite
            for first in range(0, len(outputs), BLOCK):
                part = slice(first, first + BLOCK)
                x = outputs[part].astype(np.float64).reshape(-1, *self.rows(shape))
                y = targets[part].astype(np.float64 if self.target_dtype == "float" else np.int64)
                sums = np.empty((len(x), METRICS))
                self.operation(len(x), x, y, np.empty_like(x), sums, metrics, np.ones(1), *constants)
                total += metrics
        return self.means(total)

    def means(self, metrics: np.ndarray) -> dict[str, float]:
        """Mean loss, and accuracy where there is one, from sums of the operation's metrics; NaN of nothing."""
        loss, weight, hits, count = (float(metrics[place]) for place in (LOSS, WEIGHT, CORRECT, COUNTED))
        means = {"loss": loss / weight if weight else math.nan}
        return means | ({"accuracy": hits / count if count else math.nan} if self.accuracy else {})


class CrossEntropy(Loss):
    """Softmax cross-entropy of logits (…, classes) and integer labels (…): of an image, or of each of its pixels.

    Labels may have one more axis, of length one: (n, 1) counts as (n,), as in Keras.

    Args:
        weight: of each class; the mean is over the weights of the labels (PyTorch's rule).
        ignore_index: the label of what does not count.
        label_smoothing: share of the target that is spread over all classes (Szegedy et al. 2016).
    """

    name = "cross_entropy"
    operation = losses.cross_entropy
    accuracy = True
    target_dtype = "int64"

    def __init__(
        self, weight: Sequence[float] | None = None, ignore_index: int = IGNORED, label_smoothing: float = 0.0
    ):
        self.weight = None if weight is None else _weights("CrossEntropy(weight=…)", weight)
        self.ignore_index = integer("CrossEntropy", "ignore_index", ignore_index, -(2**63))
        unit = "a number from 0 to 1"
        self.label_smoothing = number("CrossEntropy", "label_smoothing", label_smoothing, unit, lambda s: 0 <= s <= 1)

    def check_output(self, p, shape):
        if not shape or shape[-1] < 2:
            expected = "an output of shape (…, classes), at least 2 classes"
            fix = (
                "For one logit take loss='bce'" if len(shape) < 2 else "End the net with Flatten and Linear(…, classes)"
            )
            p.fail(expected=expected, got=f"output of shape {shape}", fix=fix)
        if self.weight is not None and len(self.weight) != shape[-1]:
            expected = f"{len(self.weight)} classes, as the loss has weights for"
            p.fail(expected=expected, got=f"output of shape {shape}", fix="Give a weight for each class")

    def rows(self, shape):
        return math.prod(shape[:-1]), shape[-1]

    def target_shape(self, shape):
        return shape[:-1]

    def constants(self, shape, dtype):
        weight = np.ones(shape[-1]) if self.weight is None else np.array(self.weight)
        return weight.astype(dtype), self.ignore_index, self.label_smoothing

    def targets(self, y, shape, name):
        what = f"labels of {name!r}"
        wanted = self.target_shape(shape)
        if y.shape[1:] not in (wanted, (*wanted, 1)):
            fix = "Give one label for each image; for one per pixel, end the net with a 1×1 convolution"
            if wanted:
                fix = "For labels of whole images, end the net with Flatten and Linear(…, classes)"
            if wanted and y.ndim == 1 + len(wanted):
                fix = "Pad the convolutions so that images keep their size, or cut the labels"
            if y.shape[1:] == shape:
                fix = "For one-hot rows use y.argmax(axis=-1)"
            raise _wrong_shape(what, wanted, shape, y, fix)
        if y.dtype != np.int64:
            fix = "If they are class numbers, use y.astype(int)"
            raise DataError(what, expected="integers, for cross-entropy", got=f"dtype {y.dtype}", fix=fix)
        wrong = ((y < 0) | (y >= shape[-1])) & (y != self.ignore_index)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise DataError(
                f"label out of range in {name!r}",
                expected=f"labels from 0 to {shape[-1] - 1}, for {shape[-1]} classes, or {self.ignore_index} (ignored)",
                got=f"{y[at]} at index {at[0] if len(at) == 1 else at}",
                fix="Labels count from 0; give the net an output for each, or the loss an ignore_index.",
            )
        return y.reshape(len(y), -1)

    def weights(self, targets):
        counts = targets != self.ignore_index
        if self.weight is None:
            return counts.sum(axis=1, dtype=np.float64)
        return np.where(counts, np.array(self.weight)[np.where(counts, targets, 0)], 0).sum(axis=1)

    def predictions(self, outputs):
        """Class probabilities (n, …, classes)."""
        exponentials = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
        return exponentials / exponentials.sum(axis=-1, keepdims=True)


class _ElementLoss(Loss):
    """Losses that compare each element of the output with a value; a last axis of one may be left out of targets."""

    accuracy = False

    def rows(self, shape):
        return (math.prod(shape),)

    def targets(self, y, shape, name):
        if (*y.shape[1:], 1) != shape and y.shape[1:] != shape:
            fix = "Give a value for each output, or let the net have one output for each value"
            raise _wrong_shape(f"targets of {name!r}", shape, shape, y, fix)
        return np.ascontiguousarray(y.reshape(len(y), -1), np.float32)


class BinaryCrossEntropy(_ElementLoss):
    """Sigmoid cross-entropy of logits and values from 0 to 1, each element by itself (PyTorch's BCEWithLogitsLoss).

    pos_weight: of the positive term; one number, or one for each entry of the output's last axis.
    """

    name = "bce"
    operation = losses.binary_cross_entropy
    accuracy = True

    def __init__(self, pos_weight: float | Sequence[float] | None = None):
        alone = isinstance(pos_weight, numbers.Real) and not isinstance(pos_weight, bool)
        weights = [pos_weight] if alone else pos_weight
        self.pos_weight = None if weights is None else _weights("BinaryCrossEntropy(pos_weight=…)", weights)

    def check_output(self, p, shape):
        if self.pos_weight is not None and len(self.pos_weight) not in (1, *shape[-1:]):
            expected = f"{len(self.pos_weight)} channels, as the loss has weights for"
            p.fail(expected=expected, got=f"output of shape {shape}", fix="Give one pos_weight, or one for each")

    def constants(self, shape, dtype):
        return (np.array(self.pos_weight or (1.0,)).astype(dtype),)

    def targets(self, y, shape, name):
        y = super().targets(y, shape, name)
        if not (y.min() >= 0 and y.max() <= 1):
            fix = "For several classes take loss='cross_entropy'"
            got = f"values from {y.min():g} to {y.max():g}"
            raise DataError(f"targets of {name!r}", expected="values from 0 to 1", got=got, fix=fix)
        return y

    def predictions(self, outputs):
        """Probabilities (n, …)."""
        tail = np.exp(-np.abs(outputs))
        return np.where(outputs < 0, tail, 1) / (1 + tail)


class MSE(_ElementLoss):
    """Mean squared error."""

    name = "mse"
    operation = losses.mse


class L1(_ElementLoss):
    """Mean absolute error."""

    name = "l1"
    operation = losses.l1


class Huber(_ElementLoss):
    """Squared error halved up to a distance of delta, linear beyond (Huber 1964, PyTorch's HuberLoss)."""

    name = "huber"
    operation = losses.huber

    def __init__(self, delta: float = 1.0):
        self.delta = number("Huber", "delta", delta, "a number above 0", lambda d: 0 < d < math.inf)

    def constants(self, shape, dtype):
        return (self.delta,)


LOSSES: dict[str, type[Loss]] = {kind.name: kind for kind in (CrossEntropy, BinaryCrossEntropy, MSE, L1, Huber)}


def get_loss(loss: str | Loss) -> Loss:
    """The loss of that name with its defaults, or a loss as it is; ConfigError lists the names."""
    if type(loss) in LOSSES.values():
        return loss  # type: ignore[return-value]
    if not isinstance(loss, str) or loss not in LOSSES:
        close = difflib.get_close_matches(str(loss), LOSSES, 1)
        expected = "a loss of corenet.nn, or one of " + ", ".join(map(repr, LOSSES))
        fix = f"Did you mean {close[0]!r}?" if close else None
        if isinstance(loss, type) and issubclass(loss, Loss):
            fix = f"Call it: {loss.__name__}()"
        raise ConfigError("loss", expected=expected, got=repr(loss), fix=fix)
    return LOSSES[loss]()


def describe_loss(loss: Loss) -> dict[str, Any]:
    """A loss as a JSON-able dict."""
    return {"type": loss.name, **loss.arguments()}


def build_loss(description: dict[str, Any]) -> Loss:
    """What `describe_loss` described. Raises ConfigError for anything else."""
    if not isinstance(description, dict) or description.get("type") not in LOSSES:
        raise ConfigError("loss description", expected="a loss of " + ", ".join(LOSSES), got=repr(description)[:80])
    try:
        return LOSSES[description["type"]](**{key: value for key, value in description.items() if key != "type"})
    except TypeError as error:
        raise ConfigError("loss description", got=str(error)) from error


def _wrong_shape(what: str, wanted: tuple[int, ...], output: tuple[int, ...], y: np.ndarray, fix: str) -> DataError:
    expected = f"shape {('n', *wanted)}, for an output of shape {output}".replace("'", "")
    return DataError(what, expected=expected, got=f"shape {y.shape}", fix=fix)


def _weights(what: str, values: Any) -> tuple[float, ...]:
    try:
        weights = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        weights = ()
    if not weights or not all(0 <= weight < math.inf for weight in weights):
        raise ConfigError(what, expected="a sequence of finite numbers of at least 0", got=repr(values))
    return weights
