"""Convolutional layers in one to three dimensions; arguments and defaults are PyTorch's."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, Literal

from ..engine import Parameter, Planner, Tensor
from ..errors import ConfigError
from ..kernels import bias, conv, depthwise, pad
from ..kernels.winograd import filters_work, weights_work
from .algorithm import WINOGRAD, check_algorithm, data_gradient, fastest
from .geometry import Triple, lift, per_axis, positions, spatial
from .initializer import Initializer
from .layer import integer
from .weighted import Weighted


class _Conv(Weighted):
    """What convolutions share: checked arguments, the weights, and the steps for any number of dimensions."""

    dims: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        weight_init: str | Initializer = "torch_default",
        bias_init: str | Initializer | None = None,
    ):
        name = type(self).__name__
        self.in_channels = integer(name, "in_channels", in_channels, 1)
        self.out_channels = integer(name, "out_channels", out_channels, 1)
        self.kernel_size = per_axis(name, "kernel_size", kernel_size, 1, self.dims)
        self.stride = per_axis(name, "stride", stride, 1, self.dims)
        self.dilation = per_axis(name, "dilation", dilation, 1, self.dims)
        self.padding: tuple[int, ...] | Literal["same", "valid"]
        if not isinstance(padding, str):
            self.padding = per_axis(name, "padding", padding, 0, self.dims)
        elif padding in ("same", "valid"):
            self.padding = padding  # type: ignore[assignment]
        else:
            raise ConfigError(f"{name}(padding=…)", expected='integers, "same" or "valid"', got=repr(padding))
        if self.padding == "same" and max(self.stride) > 1:
            raise ConfigError(f'{name}(padding="same")', expected="stride 1", got=repr(stride), fix="Give numbers")
        self.groups = integer(name, "groups", groups, 1)
        for what, channels in (("in_channels", self.in_channels), ("out_channels", self.out_channels)):
            if channels % self.groups:
                raise ConfigError(f"{name}(groups=…)", expected=f"a divisor of {what}={channels}", got=repr(groups))
        self._begin_with(self.dims + 2, bias, weight_init, bias_init)

    def _geometry(self) -> tuple[Triple, Triple, Triple, Triple, Triple]:
        """Kernel, stride, dilation, and padding before and after, as triples."""
        kernel, stride, dilation = lift(self.kernel_size, 1), lift(self.stride, 1), lift(self.dilation, 1)
        total = [d * (k - 1) if self.padding == "same" else 0 for k, d in zip(kernel, dilation, strict=True)]
        before: Any = tuple(t // 2 for t in total)
        after: Any = tuple(t - b for t, b in zip(total, before, strict=True))  # an odd one goes behind, as in PyTorch
        if not isinstance(self.padding, str):
            before = after = lift(self.padding, 0)
        return kernel, stride, dilation, before, after

    def _check_channels(self, p: Planner, x: Tensor, channels: int) -> None:
        if self.in_channels != channels:
            p.fail(
                expected=f"{self.in_channels} input channels (in_channels)",
                got=f"{channels}, from an input of shape {x.shape}",
                fix="Images are channels-last: x.transpose(0, 2, 3, 1)"
                if len(x.shape) == 3 and x.shape[0] == self.in_channels and p.layer_number == 1
                else f"Set in_channels={channels}",
            )

    def _kernels(self) -> ModuleType:
        return depthwise if 1 < self.groups == self.in_channels == self.out_channels else conv


class _ConvForward(_Conv):
    def plan(self, p: Planner, x: Tensor) -> Tensor:
        size, channels = spatial(p, x, self.dims)
        self._check_channels(p, x, channels)
        kernel, stride, dilation, before, after = self._geometry()
        extent: Any = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
        around: Any = tuple(map(sum, zip(before, after, strict=True)))
        out = positions(p, size, extent, stride, around, self.dims)
        inputs, K = channels // self.groups, self.out_channels
        w, b = self._parameters(p, (*self.kernel_size, inputs, K), K)
        y = p.activation((*out[3 - self.dims :], K))
        p.multiply_adds(math.prod(out) * math.prod(kernel) * inputs * K, x)
        self._steps(p, x, y, w, b, size, out)
        if p.training and self.bias:
            p.backward(bias.backward, p.view(y.grad, (p.chunk, math.prod(out), K)), b.grad)
        return y

    def _steps(self, p: Planner, x: Tensor, y: Tensor, w: Parameter, b: Parameter, size: Triple, out: Triple) -> None:
        """Forward and both gradients, from an image of that size to that output."""
        kernel, stride, dilation, before, after = self._geometry()
        around: Any = tuple(map(sum, zip(before, after, strict=True)))
        kernels, channels, K = self._kernels(), self.in_channels, self.out_channels
        weight = *kernel, channels // self.groups, K
        w_data, y_data = p.view(w.data, weight), p.view(y.data, (p.chunk, *out, K))
        image = p.view(x.data, (p.chunk, *size, channels))
        if any(around):
            padded = p.buffer((p.chunk, *(s + a for s, a in zip(size, around, strict=True)), channels))
            p.forward(pad.forward, image, padded, before)
            image = padded
        p.forward(kernels.forward, image, w_data, b.data, y_data, stride, dilation, self.groups)
        if not p.training:
            return
        dy = p.view(y.grad, (p.chunk, *out, K))
        p.backward(kernels.backward_weights, image, dy, p.view(w.grad, weight), stride, dilation, self.groups)
        if x.grad is not None:
            dx = p.view(x.grad, (p.chunk, *size, channels))
            work = p.buffer((kernels.backward_data_work(dx.shape, dy.shape, weight, stride, before, dilation),))
            p.backward(kernels.backward_data, dy, w_data, dx, stride, before, dilation, self.groups, work)


class Conv1d(_ConvForward):
    """Convolution of sequences (length, in_channels); weight (S, C/groups, K), bias (K,)."""

    dims = 1


class Conv2d(_ConvForward):
    """Convolution of images (h, w, in_channels); weight (R, S, C/groups, K), bias (K,).

    weight_init and bias_init: a name, or an initializer, of `nn.init`.
    padding: int, pair, "same" or "valid"; output rows: floor((h + 2·padding − dilation·(R − 1) − 1) / stride) + 1.
    algorithm: "direct"; Winograd's (`kernels/winograd.py`), for filters of stride 1: "winograd4" for 3×3 and 5×5, with
    two to five times the rounding error of "direct", or "winograd2" for 3×3, as exact as "direct" and half as fast as
    "winograd4"; or "auto", which takes "winograd4" where it is faster: with 16 channels or more on both sides, and
    outputs that fill enough of its 4×4 patches. A model file keeps which one that was.
    """

    dims = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        algorithm: Literal["auto", "direct", "winograd4", "winograd2"] = "auto",
        weight_init: str | Initializer = "torch_default",
        bias_init: str | Initializer | None = None,
    ):
        sizes = in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias
        super().__init__(*sizes, weight_init=weight_init, bias_init=bias_init)
        self.algorithm = algorithm
        self._plain = self.stride == self.dilation == (1, 1) and self.groups == 1
        check_algorithm(algorithm, self.kernel_size, self._plain, self)

    def _steps(self, p: Planner, x: Tensor, y: Tensor, w: Parameter, b: Parameter, size: Triple, out: Triple) -> None:
        C, K = self.in_channels, self.out_channels
        algorithm: str = self.algorithm
        if algorithm == "auto":
            algorithm = fastest(self.kernel_size, min(C, K), *out[1:]) if self._plain else "direct"
        p.decide(self, algorithm=algorithm)
        if algorithm == "direct":
            super()._steps(p, x, y, w, b, size, out)
            return
        kernels, around = WINOGRAD[algorithm, self.kernel_size], self._geometry()[3][1:]
        sizes = kernels.OUTPUTS, self.kernel_size[0], C, K
        p.forward(kernels.forward, x.data, w.data, b.data, y.data, *around, p.buffer((filters_work(*sizes),)))
        if not p.training:
            return
        work = p.buffer((weights_work(*sizes),))
        p.backward(kernels.backward_weights, x.data, y.grad, w.grad, *around, work)
        if x.grad is not None:
            work = p.buffer((filters_work(*sizes),))
            operation = data_gradient(kernels, size[1:], out[1:])
            p.backward(operation, y.grad, w.data, x.grad, *around, work)


class Conv3d(_ConvForward):
    """Convolution of volumes (d, h, w, in_channels); weight (F, R, S, C/groups, K), bias (K,)."""

    dims = 3


class ConvTranspose2d(_Conv):
    """The transpose of Conv2d (its data gradient as a layer): images (h, w, in_channels) grow by the stride.

    Weight (R, S, out_channels/groups, in_channels), bias (out_channels,); output rows: (h − 1)·stride − 2·padding +
    dilation·(R − 1) + output_padding + 1.
    """

    dims = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        *,
        weight_init: str | Initializer = "torch_default",
        bias_init: str | Initializer | None = None,
    ):
        if isinstance(padding, str):
            raise ConfigError("ConvTranspose2d(padding=…)", expected="integers", got=repr(padding))
        how: Any = {"weight_init": weight_init, "bias_init": bias_init}
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, **how)
        self.output_padding = per_axis("ConvTranspose2d", "output_padding", output_padding, 0, 2)
        if any(o >= max(s, d) for o, s, d in zip(self.output_padding, self.stride, self.dilation, strict=True)):
            expected = "smaller than stride or dilation"
            raise ConfigError("ConvTranspose2d(output_padding=…)", expected=expected, got=repr(output_padding))

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        size, channels = spatial(p, x, 2)
        self._check_channels(p, x, channels)
        kernel, stride, dilation, padding, _ = self._geometry()
        more = lift(self.output_padding, 0)
        out: Any = tuple(
            (size[a] - 1) * stride[a] - 2 * padding[a] + dilation[a] * (kernel[a] - 1) + more[a] + 1 for a in range(3)
        )
        if min(out) < 1:
            p.fail(expected="an output of at least one pixel", got=f"{out[1]}×{out[2]}", fix="Use less padding")
        outputs, K = self.out_channels // self.groups, self.out_channels
        # The fans are PyTorch's: of the convolution that this is the transpose of.
        w, b = self._parameters(p, (*self.kernel_size, outputs, channels), K)
        y = p.activation((*out[1:], K))
        p.multiply_adds(math.prod(size) * math.prod(kernel) * outputs * channels, x)
        weight = *kernel, outputs, channels
        w_data, image = p.view(w.data, weight), p.view(x.data, (p.chunk, *size, channels))
        y_data = p.view(y.data, (p.chunk, *out, K))
        kernels = self._kernels()
        size_of_work = kernels.backward_data_work(y_data.shape, image.shape, weight, stride, padding, dilation)
        work = p.buffer((size_of_work,))
        p.forward(kernels.backward_data, image, w_data, y_data, stride, padding, dilation, self.groups, work)
        positions = p.chunk, math.prod(out), K
        if self.bias:
            p.forward(bias.add, b.data, p.view(y.data, positions))
        if not p.training:
            return y
        dy = padded = p.view(y.grad, (p.chunk, *out, K))
        if any(padding):
            padded = p.buffer((p.chunk, *(s + 2 * a for s, a in zip(out, padding, strict=True)), K))
        # Backward steps run in reverse: the padding of dy comes first.
        p.backward(kernels.backward_weights, padded, image, p.view(w.grad, weight), stride, dilation, self.groups)
        if x.grad is not None:
            dx, none = p.view(x.grad, image.shape), p.buffer((0,))
            p.backward(kernels.forward, padded, w_data, none, dx, stride, dilation, self.groups)
        if any(padding):
            p.backward(pad.forward, dy, padded, padding)
        if self.bias:
            p.backward(bias.backward, p.view(y.grad, positions), b.grad)
        return y
