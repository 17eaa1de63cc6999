"""Normalisation of each sample by itself: GroupNorm and LayerNorm, the same in training and prediction."""

import math

from ..engine import Planner, Tensor
from ..errors import ConfigError
from ..kernels import groupnorm
from .init import constant
from .layer import Layer, integer, number


class GroupNorm(Layer):
    """Normalise groups of neighbouring channels over all positions of a sample, scale and shift (Wu & He 2018).

    Input (…, num_channels): images or vectors; weight and bias (num_channels,).
    """

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True):
        self.num_groups = integer("GroupNorm", "num_groups", num_groups, 1)
        self.num_channels = integer("GroupNorm", "num_channels", num_channels, 1)
        if self.num_channels % self.num_groups:
            raise ConfigError(
                "GroupNorm(num_groups=…)",
                expected=f"a divisor of num_channels, which is {self.num_channels}",
                got=repr(num_groups),
            )
        self.eps = _eps("GroupNorm", eps)
        self.affine = bool(affine)

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        C = self.num_channels
        if x.shape[-1] != C:
            p.fail(
                expected=f"{C} channels (num_channels)",
                got=f"{x.shape[-1]}, from an input of shape {x.shape}",
                fix=f"Set num_channels={x.shape[-1]}",
            )
        return _normalise(p, x, (1, math.prod(x.shape[:-1]), C), self.num_groups, (C,), self.affine, self.eps)


class LayerNorm(Layer):
    """Normalise over the last axes of a sample, scale and shift (Ba, Kiros & Hinton 2016).

    Input (…, *normalized_shape), weight and bias (*normalized_shape,). Images are (h, w, c): LayerNorm(c) normalises
    the channels of each pixel, LayerNorm((h, w, c)) the whole image, which is PyTorch's LayerNorm((c, h, w)).
    """

    def __init__(self, normalized_shape, eps: float = 1e-5, elementwise_affine: bool = True):
        sizes = normalized_shape if isinstance(normalized_shape, tuple | list) else (normalized_shape,)
        self.normalized_shape = tuple(integer("LayerNorm", "normalized_shape", size, 1) for size in sizes)
        if not self.normalized_shape:
            raise ConfigError("LayerNorm(normalized_shape=…)", expected="at least one axis", got=repr(normalized_shape))
        self.eps = _eps("LayerNorm", eps)
        self.elementwise_affine = bool(elementwise_affine)

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        shape = self.normalized_shape
        axes = len(shape)
        if x.shape[-axes:] != shape:
            p.fail(
                expected=f"an input whose last axes are {shape} (normalized_shape)",
                got=f"input of shape {x.shape}",
                fix=f"Set normalized_shape={x.shape[-axes:]}",
            )
        view = math.prod(x.shape[:-axes]), 1, math.prod(shape)
        return _normalise(p, x, view, 1, shape, self.elementwise_affine, self.eps)


def _eps(owner: str, eps: float) -> float:
    return number(owner, "eps", eps, "a number above 0", lambda eps: 0 < eps < math.inf)


def _normalise(
    p: Planner, x: Tensor, view: tuple[int, int, int], groups: int, shape: tuple[int, ...], affine: bool, eps: float
) -> Tensor:
    """The steps of both layers on samples viewed as (rows, positions, C), with parameters of that shape, or (0,)."""
    rows, _, C = view
    full, channels = (p.chunk, *view), (C if affine else 0,)
    gamma = p.parameter("weight", shape if affine else (0,), constant(1))
    beta = p.parameter("bias", shape if affine else (0,), constant(0))
    y = p.activation(x.shape)
    mean, rstd = p.buffer((p.chunk, rows, groups)), p.buffer((p.chunk, rows, groups))
    x_view, scale = p.view(x.data, full), p.view(gamma.data, channels)
    p.forward(
        groupnorm.forward, x_view, scale, p.view(beta.data, channels), p.view(y.data, full), mean, rstd,
        p.buffer((p.chunk, 4 * C)), eps,
    )  # fmt: skip
    if p.training and (affine or x.grad is not None):
        dx = None if x.grad is None else p.view(x.grad, full)
        dgamma, dbeta = (p.view(parameter.grad, channels) for parameter in (gamma, beta))
        p.backward(
            groupnorm.backward, x_view, p.view(y.grad, full), scale, mean, rstd, dx, dgamma, dbeta,
            p.buffer((p.chunk, 7 * C)),
        )  # fmt: skip
    return y
