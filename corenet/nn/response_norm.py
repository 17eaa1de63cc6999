"""Local response normalisation, of the AlexNet years."""

import math

from ..engine import Planner, Tensor
from ..kernels import response_norm
from .layer import Layer, integer, number


class LocalResponseNorm(Layer):
    """y = x / (k + alpha·mean of x² over `size` neighbouring channels)^beta (Krizhevsky, Sutskever & Hinton 2012).

    Input (…, channels). As in PyTorch the mean divides by `size`, also at the first and last channels, which have fewer
    neighbours; the paper takes the sum, so its alpha is that of this layer divided by `size`.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        self.size = integer("LocalResponseNorm", "size", size, 1)
        self.alpha = number(
            "LocalResponseNorm", "alpha", alpha, "a number of at least 0", lambda alpha: 0 <= alpha < math.inf
        )
        self.beta = number("LocalResponseNorm", "beta", beta, "a finite number", math.isfinite)
        self.k = number("LocalResponseNorm", "k", k, "a number above 0", lambda k: 0 < k < math.inf)

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        C = x.shape[-1]
        flat = p.chunk, math.prod(x.shape[:-1]), C
        y = p.activation(x.shape)
        x_flat, y_flat, s = p.view(x.data, flat), p.view(y.data, flat), p.buffer(flat)
        p.forward(response_norm.forward, x_flat, y_flat, s, self.size, self.alpha, self.beta, self.k)
        if x.grad is not None:
            dy, dx, work = p.view(y.grad, flat), p.view(x.grad, flat), p.buffer((p.chunk, C))
            p.backward(response_norm.backward, x_flat, y_flat, s, dy, dx, work, self.size, self.alpha, self.beta)
        return y
