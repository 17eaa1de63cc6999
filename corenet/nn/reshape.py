"""Reshape: the same numbers in another shape."""

import math

from ..engine import Planner, Tensor
from ..errors import ConfigError
from .layer import Layer, integer


class Reshape(Layer):
    """Samples of any shape → `shape`, in the order they lie in memory (channels fastest); no copy."""

    def __init__(self, *shape: int):
        self.shape = tuple(integer("Reshape", "shape", size, 1) for size in shape)
        if not shape:
            raise ConfigError("Reshape(shape=…)", expected="at least one size", got="none")

    def __repr__(self) -> str:
        return f"Reshape({', '.join(map(str, self.shape))})"

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        if math.prod(self.shape) != math.prod(x.shape):
            p.fail(
                expected=f"{math.prod(self.shape)} elements, for shape {self.shape}",
                got=f"{math.prod(x.shape)}, from an input of shape {x.shape}",
                fix=f"Give sizes whose product is {math.prod(x.shape)}",
            )
        return p.reshape(x, self.shape)
