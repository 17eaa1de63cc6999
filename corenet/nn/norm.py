"""Batch normalisation."""

import math

from ..engine import Planner, Tensor
from ..kernels import batchnorm
from .geometry import described
from .init import constant
from .layer import Layer, integer, number


class _BatchNorm(Layer):
    """Batch normalisation of samples of shape (…, channels); the classes below differ in the shapes they take."""

    dims: tuple[int, ...]  # how many spatial axes an input may have

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1):
        name = type(self).__name__
        self.num_features = integer(name, "num_features", num_features, 1)
        self.eps = number(name, "eps", eps, "a number above 0", lambda eps: 0 < eps < math.inf)
        self.momentum = number(name, "momentum", momentum, "a number from 0 to 1", lambda m: 0 <= m <= 1)

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        dims = len(x.shape) - 1
        if dims not in self.dims:
            expected = "samples of shape " + " or ".join(map(described, self.dims))
            p.fail(expected=expected, got=f"input of shape {x.shape}", fix=f"Use BatchNorm{max(1, dims)}d")
        positions, C = math.prod(x.shape[:-1]), x.shape[-1]
        if self.num_features != C:
            p.fail(expected=f"{self.num_features} channels (num_features)", got=str(C), fix=f"Set num_features={C}")
        gamma = p.parameter("weight", (C,), constant(1))
        beta = p.parameter("bias", (C,), constant(0))
        mean = p.statistic("running_mean", (C,), 0)
        variance = p.statistic("running_var", (C,), 1)
        y = p.activation(x.shape)
        flat = p.chunk, positions, C
        x_flat, y_flat = p.view(x.data, flat), p.view(y.data, flat)
        if not p.training:
            p.forward(
                batchnorm.forward_running,
                x_flat,
                gamma.data,
                beta.data,
                mean.running,
                variance.running,
                y_flat,
                self.eps,
            )
            return y
        rstd, work = p.buffer((C,)), p.buffer((p.chunk, C))
        p.forward(
            batchnorm.forward, x_flat, gamma.data, beta.data, y_flat, mean.chunk, variance.chunk, rstd, work, self.eps
        )
        dx = None if x.grad is None else p.view(x.grad, flat)
        p.backward(
            batchnorm.backward, x_flat, p.view(y.grad, flat), gamma.data, mean.chunk, rstd, dx, gamma.grad, beta.grad,
            p.buffer((p.chunk, 2 * C)),
        )  # fmt: skip
        p.after_batch(batchnorm.merge, (mean, variance), positions, self.momentum)
        return y


class BatchNorm1d(_BatchNorm):
    """BatchNorm2d for vectors (channels,) and sequences (length, channels)."""

    dims = 0, 1


class BatchNorm2d(_BatchNorm):
    """Normalise each channel by the chunk's statistics (ghost batch norm, Hoffer et al. 2017), scale and shift.

    Prediction uses running statistics, moved by `momentum` at every step towards the whole batch's mean and unbiased
    variance, PyTorch's rule. With one chunk per batch this is the textbook layer.
    """

    dims = (2,)


class BatchNorm3d(_BatchNorm):
    """BatchNorm2d for volumes (depth, height, width, channels)."""

    dims = (3,)
