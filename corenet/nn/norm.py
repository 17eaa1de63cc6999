"""Batch normalisation."""

import math

from ..engine import Parameter, Planner, Statistic, Tensor
from ..kernels import batchnorm
from .geometry import described, image_as
from .init import constant
from .layer import Layer, integer, number


class _BatchNorm(Layer):
    """Batch normalisation of samples of shape (…, channels); the classes below differ in the shapes they take."""

    dims: tuple[int, ...]  # how many spatial axes an input may have

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, sync: bool = False):
        name = type(self).__name__
        self.num_features = integer(name, "num_features", num_features, 1)
        self.eps = number(name, "eps", eps, "a number above 0", lambda eps: 0 < eps < math.inf)
        self.momentum = number(name, "momentum", momentum, "a number from 0 to 1", lambda m: 0 <= m <= 1)
        self.sync = bool(sync)

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        dims = len(x.shape) - 1
        if dims not in self.dims:
            expected = "samples of shape " + " or ".join(map(described, self.dims))
            fix = f"Use BatchNorm{max(1, dims)}d"
            if dims == 2:
                vectors = ", or Flatten()" if 0 in self.dims else ""
                fix = f"{image_as(x.shape, max(self.dims))}{vectors}; or use BatchNorm2d"
            p.fail(expected=expected, got=f"input of shape {x.shape}", fix=fix)
        positions, C = math.prod(x.shape[:-1]), x.shape[-1]
        if self.num_features != C:
            p.fail(expected=f"{self.num_features} channels (num_features)", got=str(C), fix=f"Set num_features={C}")
        gamma = p.parameter("weight", (C,), constant(1))
        beta = p.parameter("bias", (C,), constant(0))
        mean = p.statistic("running_mean", (C,), 0)
        variance = p.statistic("running_var", (C,), 1)
        y = p.activation(x.shape)
        if p.training:
            self._train(p, x, y, gamma, beta, mean, variance)
        else:
            rstd, flat = p.buffer((C,)), (p.chunk, positions, C)
            p.forward(batchnorm.running_rstd, variance.running, rstd, self.eps)
            p.forward(
                batchnorm.normalise, p.view(x.data, flat), gamma.data, beta.data, mean.running, rstd,
                p.view(y.data, flat),
            )  # fmt: skip
        return y

    def _train(
        self, p: Planner, x: Tensor, y: Tensor, gamma: Parameter, beta: Parameter, mean: Statistic, variance: Statistic
    ) -> None:
        """Measure the chunk, and normalise it by that, or by what all chunks of the batch make of it together."""
        positions, C = math.prod(x.shape[:-1]), x.shape[-1]
        flat = p.chunk, positions, C
        x_flat, dy = p.view(x.data, flat), p.view(y.grad, flat)
        make = p.common if self.sync else p.buffer
        rstd, means = make((C,)), make((2, C))
        used_mean, own_rstd, own_means = (make((C,)), None, None) if self.sync else (mean.chunk, rstd, means)
        scratch = p.common((p.chunks, 2 * C)) if self.sync else None

        work = p.buffer((p.chunk, 2 * C))
        p.forward(batchnorm.measure, x_flat, mean.chunk, variance.chunk, own_rstd, work, self.eps)
        if self.sync:
            measured = mean.chunk, variance.chunk
            p.meet_forward(batchnorm.combine, measured, (used_mean, rstd, scratch), positions, self.eps)
        p.forward(batchnorm.normalise, x_flat, gamma.data, beta.data, used_mean, rstd, p.view(y.data, flat))

        # Backward steps run from the last to the first.
        if x.grad is not None:
            dx = p.view(x.grad, flat)
            p.backward(batchnorm.backward, x_flat, dy, gamma.data, used_mean, rstd, means, dx)
            if self.sync:
                p.meet_backward(batchnorm.combine_gradients, (gamma.grad, beta.grad), (means, scratch), positions)
        work = p.buffer((p.chunk, 2 * C))
        p.backward(batchnorm.measure_gradients, x_flat, dy, used_mean, rstd, gamma.grad, beta.grad, own_means, work)
        p.after_batch(batchnorm.merge, (mean, variance), positions, self.momentum)


class BatchNorm1d(_BatchNorm):
    """BatchNorm2d for vectors (channels,) and sequences (length, channels)."""

    dims = 0, 1


class BatchNorm2d(_BatchNorm):
    """Normalise each channel by the chunk's statistics (ghost batch norm, Hoffer et al. 2017), scale and shift.

    With sync=True by those of the whole batch, as in the textbook: all chunks meet here once in each direction, for
    which a worker keeps the activations of its whole slice. Prediction uses running statistics, moved by `momentum` at
    every step towards the whole batch's mean and unbiased variance, PyTorch's rule.
    """

    dims = (2,)


class BatchNorm3d(_BatchNorm):
    """BatchNorm2d for volumes (depth, height, width, channels)."""

    dims = (3,)
