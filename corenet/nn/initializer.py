"""What an initializer is: a function that knows by what name and with which arguments it was made.

So it can be written down and made again, in a worker or from a model file, where a closure could not go.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec

import numpy as np

from ..errors import ShapeError

Fill = Callable[[np.random.Generator, tuple[int, ...]], Any]  # gives a float array of that shape
P = ParamSpec("P")

NEEDS = {1: "an array", 2: "a weight of shape (…, in, out)", 3: "a filter of shape (…, in, out)"}  # by axes
MAKERS: dict[str, Callable[..., Initializer]] = {}  # by name: all that a description of a net may call


@dataclass(frozen=True)
class Initializer:
    """The first values of a parameter; made by the functions of `corenet.nn.init`."""

    name: str  # of the function that made it
    arguments: tuple[tuple[str, Any], ...]  # all of that call, those left out included
    axes: int  # the fewest that an array must have
    fill: Fill = field(compare=False)

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
        if len(shape) < self.axes:
            fix = "Give biases zeros() or uniform_fan_in(fan_in of the layer)" if len(shape) == 1 else None
            raise ShapeError(self.name, expected=NEEDS[self.axes], got=f"shape {shape}", fix=fix)
        return self.fill(generator, shape)

    def __repr__(self) -> str:
        return f"init.{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments)})"


def initializer(axes: int = 1) -> Callable[[Callable[P, Fill]], Callable[P, Initializer]]:
    """Let the decorated function, which makes a Fill for arrays of that many axes or more, make an Initializer."""

    def decorate(make: Callable[P, Fill]) -> Callable[P, Initializer]:
        @functools.wraps(make)
        def made(*args: P.args, **kwargs: P.kwargs) -> Initializer:
            fill = make(*args, **kwargs)
            call = inspect.signature(make).bind(*args, **kwargs)
            call.apply_defaults()
            plain = ((k, v.item() if isinstance(v, np.generic) else v) for k, v in call.arguments.items())
            return Initializer(make.__name__, tuple(plain), axes, fill)

        MAKERS[make.__name__] = made
        return made

    return decorate
