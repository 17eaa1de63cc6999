"""Layers on each element alone: ReLU and Dropout; and Flatten, which only changes the shape."""

from ..engine import Planner, Tensor
from ..kernels import dropout, elementwise
from .layer import Layer, number


class ReLU(Layer):
    """y = max(x, 0)."""

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        y = p.activation(x.shape)
        p.forward(elementwise.relu_forward, p.flat(x.data), p.flat(y.data))
        if x.grad is not None:
            p.backward(elementwise.relu_backward, p.flat(y.data), p.flat(y.grad), p.flat(x.grad))
        return y


class Dropout(Layer):
    """In training each element is zeroed with probability p, the others divided by 1 − p; nothing in prediction."""

    def __init__(self, p: float = 0.5):
        self.p = number("Dropout", "p", p, "a probability, 0 <= p < 1", lambda p: 0 <= p < 1)

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        if not p.training or self.p == 0:
            return x
        y = p.activation(x.shape)
        kept = p.buffer((p.chunk, *x.shape), "uint8")
        number = p.layer_number
        p.forward(dropout.forward, p.flat(x.data), p.flat(y.data), p.flat(kept), p.samples, p.clock, number, self.p)
        if x.grad is not None:
            p.backward(dropout.backward, p.flat(y.grad), p.flat(kept), p.flat(x.grad), self.p)
        return y


class Flatten(Layer):
    """(h, w, c) → (h·w·c,), channels fastest; no copy."""

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        size = 1
        for length in x.shape:
            size *= length
        return p.reshape(x, (size,))
