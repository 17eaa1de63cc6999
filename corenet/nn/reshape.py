"""Reshape: the same numbers in another shape."""

import math

from ..engine import Planner, Tensor
from ..errors import ConfigError
from .layer import Layer, integer


class Reshape(Layer):
    """Samples of any shape → `shape`, in the order they lie in memory (channels fastest); no copy.

    One of the sizes may be -1: what the others leave.
    """

    def __init__(self, *shape: int):
        if len(shape) == 1 and isinstance(shape[0], tuple | list):
            fix = f"Write Reshape({', '.join(map(str, shape[0]))})"
            raise ConfigError("Reshape(shape=…)", expected="integers", got=repr(shape[0]), fix=fix)
        self.shape = tuple(-1 if size == -1 else integer("Reshape", "shape", size, 1) for size in shape)
        if not shape:
            raise ConfigError("Reshape(shape=…)", expected="at least one size", got="none")
        if self.shape.count(-1) > 1:
            raise ConfigError("Reshape(shape=…)", expected="at most one size of -1", got=repr(self.shape))

    def __repr__(self) -> str:
        return f"Reshape({', '.join(map(str, self.shape))})"

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        elements, known = math.prod(x.shape), math.prod(size for size in self.shape if size != -1)
        shape = tuple(elements // known if size == -1 else size for size in self.shape)
        if math.prod(shape) != elements:
            p.fail(
                expected=f"{'a multiple of ' if -1 in self.shape else ''}{known} elements, for shape {self.shape}",
                got=f"{elements}, from an input of shape {x.shape}",
                fix=f"Give sizes whose product is {elements}",
            )
        return p.reshape(x, shape)
