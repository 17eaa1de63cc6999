"""What a layer is: something that, given a planner and an input, writes down its steps and returns its output.

A layer allocates nothing and computes nothing itself. `plan` is called once; it asks the planner for parameters and
buffers and appends forward and backward steps, each an operation with its arguments. Backward is explicit: the
derivative is what this code teaches. The planner (in `corenet.engine`) is passed in, so layers know nothing of memory,
threads or processes.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import ConfigError


@dataclass(frozen=True)
class Tensor:
    """An activation of a chunk: its data, and its gradient where one is needed (training, and not the images)."""

    data: Any  # a buffer of shape (chunk, *shape)
    grad: Any
    shape: tuple[int, ...]  # of one sample


@dataclass(frozen=True)
class Parameter:
    """A trained array: its values, and a chunk's gradient (None where the batch makes it, see `product`)."""

    data: Any
    grad: Any


@dataclass(frozen=True)
class Statistic:
    """A running array that training measures: its running values, and what a chunk measured."""

    running: Any
    chunk: Any


Initializer = Callable[[Any, tuple[int, ...]], Any]  # (numpy Generator, shape) -> float array


class Planner(Protocol):
    """What a layer may ask for while it is planned; see `corenet.engine.planner` for the meaning of each."""

    chunk: int
    training: bool
    samples: Any
    clock: Any
    layer_number: int

    def parameter(
        self, name: str, shape: tuple[int, ...], init: Initializer, *, per_batch: bool = False
    ) -> Parameter: ...
    def statistic(self, name: str, shape: tuple[int, ...], value: float) -> Statistic: ...
    def activation(self, shape: tuple[int, ...]) -> Tensor: ...
    def buffer(self, shape: tuple[int, ...], dtype: str = "float") -> Any: ...
    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor: ...
    def flat(self, buffer: Any) -> Any: ...
    def view(self, buffer: Any, shape: tuple[int, ...]) -> Any: ...
    def share_gradient(self, a: Tensor, b: Tensor) -> None: ...
    def forward(self, operation: Any, *args: Any) -> None: ...
    def backward(self, operation: Any, *args: Any) -> None: ...
    def product(self, operation: Any, x: Any, dy: Any, weight: Parameter) -> None: ...
    def after_batch(self, operation: Any, statistics: tuple[Statistic, ...], *args: Any) -> None: ...
    def child(self, name: str, layer: Layer, x: Tensor) -> Tensor: ...
    def fail(self, *, expected: str, got: str, fix: str) -> None: ...


class Layer:
    """Base of all layers: subclasses keep their constructor's arguments as attributes of the same names."""

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        """Write down the steps from input x; the output. Raises ShapeError where x does not fit."""
        raise TypeError(f"{type(self).__name__} does not define plan(planner, x)")

    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments, by name: what it takes to make the same layer again."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.arguments().items())})"


def integer(owner: str, name: str, value: Any, least: int) -> int:
    """Check a size given to a layer, Python's or NumPy's; ConfigError names the layer and the argument."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ConfigError(f"{owner}({name}=…)", expected=f"an integer of at least {least}", got=repr(value))
    return int(value)


def number(owner: str, name: str, value: Any, expected: str, good: Callable[[float], bool]) -> float:
    """Check a number given to a layer, Python's or NumPy's; ConfigError names the layer and the argument."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not good(float(value)):
        raise ConfigError(f"{owner}({name}=…)", expected=expected, got=repr(value))
    return float(value)


def pair(owner: str, name: str, value: Any, least: int) -> tuple[int, int]:
    """An int, or a pair of ints for (height, width), as a pair."""
    values = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(values) != 2:
        raise ConfigError(f"{owner}({name}=…)", expected="an integer or a pair of integers", got=repr(value))
    return integer(owner, name, values[0], least), integer(owner, name, values[1], least)


def image_shape(p: Planner, x: Tensor) -> tuple[int, int, int]:
    """The (height, width, channels) of an input that has to be an image."""
    if len(x.shape) != 3:
        p.fail(
            expected="images (height, width, channels)",
            got=f"input of shape {x.shape}",
            fix="Place it before Flatten and Linear",
        )
    return x.shape  # type: ignore[return-value]
