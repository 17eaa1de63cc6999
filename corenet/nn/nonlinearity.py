"""Activation layers beyond ReLU: LeakyReLU, ELU, GELU, SiLU, Tanh, Sigmoid on each element, Softmax over channels."""

import math

from ..engine import Planner, Tensor
from ..errors import ConfigError
from ..kernels import activation
from .layer import Layer, number


class LeakyReLU(Layer):
    """y = x where x > 0, else negative_slope·x (Maas, Hannun & Ng 2013); any shape."""

    def __init__(self, negative_slope: float = 0.01):
        self.negative_slope = number("LeakyReLU", "negative_slope", negative_slope, "a finite number", math.isfinite)

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        return _from_input(p, x, activation.leaky_relu_forward, activation.leaky_relu_backward, self.negative_slope)


class ELU(Layer):
    """y = x where x > 0, else alpha·(exp(x) − 1) (Clevert, Unterthiner & Hochreiter 2016); any shape."""

    def __init__(self, alpha: float = 1.0):
        self.alpha = number("ELU", "alpha", alpha, "a finite number", math.isfinite)

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        return _from_input(p, x, activation.elu_forward, activation.elu_backward, self.alpha)


class GELU(Layer):
    """y = x·Φ(x), Φ of the normal distribution or its approximation "tanh" (Hendrycks & Gimpel 2016); any shape."""

    def __init__(self, approximate: str = "none"):
        if approximate not in ("none", "tanh"):
            raise ConfigError("GELU(approximate=…)", expected="'none' or 'tanh'", got=repr(approximate))
        self.approximate = approximate

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        return _from_input(p, x, activation.gelu_forward, activation.gelu_backward, self.approximate == "tanh")


class SiLU(Layer):
    """y = x·σ(x), also called swish (Elfwing, Uchibe & Doya 2018); any shape."""

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        return _from_input(p, x, activation.silu_forward, activation.silu_backward)


class Tanh(Layer):
    """y = tanh(x); any shape."""

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        return _from_output(p, x, (p.chunk, math.prod(x.shape)), activation.tanh_forward, activation.tanh_backward)


class Sigmoid(Layer):
    """y = 1/(1 + exp(−x)); any shape."""

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        shape = p.chunk, math.prod(x.shape)
        return _from_output(p, x, shape, activation.sigmoid_forward, activation.sigmoid_backward)


class Softmax(Layer):
    """y = exp(x)/Σ exp(x) over the last axis: the channels of each pixel, the elements of a vector.

    Not wanted before CrossEntropy, which takes logits.
    """

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        shape = p.chunk, math.prod(x.shape[:-1]), x.shape[-1]
        return _from_output(p, x, shape, activation.softmax_forward, activation.softmax_backward)


def _from_input(p: Planner, x: Tensor, forward, backward, *settings) -> Tensor:
    """An activation whose derivative is computed from x."""
    y = p.activation(x.shape)
    p.forward(forward, p.flat(x.data), p.flat(y.data), *settings)
    if x.grad is not None:
        p.backward(backward, p.flat(x.data), p.flat(y.grad), p.flat(x.grad), *settings)
    return y


def _from_output(p: Planner, x: Tensor, shape: tuple[int, ...], forward, backward) -> Tensor:
    """An activation whose derivative is computed from y, on arrays viewed in that shape."""
    y = p.activation(x.shape)
    p.forward(forward, p.view(x.data, shape), p.view(y.data, shape))
    if x.grad is not None:
        p.backward(backward, p.view(y.data, shape), p.view(y.grad, shape), p.view(x.grad, shape))
    return y
