"""Pooling layers in one to three dimensions, PyTorch's conventions: stride defaults to the window."""

from __future__ import annotations

import math
from typing import Any

from ..engine import Planner, Tensor
from ..errors import ConfigError
from ..kernels import pool
from .geometry import Triple, lift, per_axis, positions, spatial
from .layer import Layer


class _Pool(Layer):
    """What pooling layers share: checked arguments and the output's size."""

    dims: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False):
        name = type(self).__name__
        self.kernel_size = per_axis(name, "kernel_size", kernel_size, 1, self.dims)
        self.stride = per_axis(name, "stride", kernel_size if stride is None else stride, 1, self.dims)
        self.padding = per_axis(name, "padding", padding, 0, self.dims)
        if any(2 * pad > size for pad, size in zip(self.padding, self.kernel_size, strict=True)):
            raise ConfigError(f"{name}(padding=…)", expected="at most half of kernel_size", got=repr(padding))
        self.ceil_mode = bool(ceil_mode)

    def _windows(self) -> tuple[Triple, Triple, Triple]:
        return lift(self.kernel_size, 1), lift(self.stride, 1), lift(self.padding, 0)

    def _output(self, p: Planner, x: Tensor) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
        """The output, and the shapes of input and output as the kernels see them."""
        size, channels = spatial(p, x, self.dims)
        window, stride, padding = self._windows()
        around: Any = tuple(2 * pad for pad in padding)
        out = positions(p, size, window, stride, around, self.dims, ceil=self.ceil_mode)
        y = p.activation((*out[3 - self.dims :], channels))
        return y, (p.chunk, *size, channels), (p.chunk, *out, channels)


class _MaxPool(_Pool):
    def plan(self, p: Planner, x: Tensor) -> Tensor:
        y, x_shape, y_shape = self._output(p, x)
        places = math.prod(self._windows()[0])
        which = p.buffer(y_shape, "uint8" if places <= 256 else "int32")
        p.forward(pool.max_forward, p.view(x.data, x_shape), p.view(y.data, y_shape), which, *self._windows())
        if x.grad is not None:
            dy, dx = p.view(y.grad, y_shape), p.view(x.grad, x_shape)
            p.backward(pool.max_backward, dy, which, dx, *self._windows())
        return y


class _AvgPool(_Pool):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.count_include_pad = bool(count_include_pad)

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        y, x_shape, y_shape = self._output(p, x)
        how = *self._windows(), self.count_include_pad
        p.forward(pool.average_forward, p.view(x.data, x_shape), p.view(y.data, y_shape), *how)
        if x.grad is not None:
            p.backward(pool.average_backward, p.view(y.grad, y_shape), p.view(x.grad, x_shape), *how)
        return y


class MaxPool1d(_MaxPool):
    """The largest value of each window of a sequence (length, channels)."""

    dims = 1


class MaxPool2d(_MaxPool):
    """The largest value of each window of an image (h, w, channels); padding never wins."""

    dims = 2


class MaxPool3d(_MaxPool):
    """The largest value of each window of a volume (d, h, w, channels)."""

    dims = 3


class AvgPool1d(_AvgPool):
    """The mean of each window of a sequence (length, channels)."""

    dims = 1


class AvgPool2d(_AvgPool):
    """The mean of each window of an image (h, w, channels); padding counts as zeros unless count_include_pad=False."""

    dims = 2


class AvgPool3d(_AvgPool):
    """The mean of each window of a volume (d, h, w, channels)."""

    dims = 3
