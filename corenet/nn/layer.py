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
from typing import Any

from ..engine import Planner, Tensor
from ..errors import ConfigError
from .summary import CHUNK, Summary, summarize


class Layer:
    """Base of all layers: subclasses keep their constructor's arguments as attributes of the same names."""

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        """Write down the steps from input x; the output. Raises ShapeError where x does not fit."""
        raise TypeError(f"{type(self).__name__} does not define plan(planner, x)")

    def summary(self, input_shape: tuple[int, ...], chunk: int = CHUNK) -> Summary:
        """What each layer makes of samples of input_shape: output shapes, parameters, FLOPs, and memory in training.

        Printed, it is a table. FLOPs are those of convolutions and dense layers, 2 for each multiply-add of the direct
        algorithm; all else counts 0, as in fvcore and torchinfo. Training takes three times as many, but only twice
        as many where the input is the images, which need no gradient. Memory is what a worker needs for one chunk;
        32 samples are the most that the Trainer takes by itself, from batches of 256 on.
        Raises ConfigError for a bad input_shape, ShapeError naming the layer that does not fit.
        """
        if not isinstance(input_shape, tuple) or not input_shape:
            expected = "a tuple of sizes, such as (28, 28, 1)"
            raise ConfigError("summary(input_shape=…)", expected=expected, got=repr(input_shape))
        sizes = tuple(integer("summary", "input_shape", size, 1) for size in input_shape)
        return summarize(self, sizes, integer("summary", "chunk", chunk, 1))

    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments, by name: what it takes to make the same layer again."""
        names = inspect.signature(type(self)).parameters
        lost = [name for name in names if not hasattr(self, name)]
        if lost:
            what = f"layer {type(self).__name__}"
            expected = f"its argument {lost[0]!r} as an attribute of that name, to make the layer again in a worker"
            raise ConfigError(what, expected=expected, got="none", fix=f"In __init__: self.{lost[0]} = {lost[0]}")
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        """The layer as it could be written, without arguments that are as by default."""
        parameters = inspect.signature(type(self)).parameters

        def is_default(value: Any, default: Any) -> bool:
            return value == default or (isinstance(value, tuple) and value == (default,) * len(value))  # (1, 1) for 1

        shown = {k: v for k, v in self.arguments().items() if not is_default(v, parameters[k].default)}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


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
    return x.shape
