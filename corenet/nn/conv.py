"""The convolutional layer."""

from ..kernels import conv2d, pad2d
from .init import uniform_fan_in
from .layer import Layer, Planner, Tensor, image_shape, integer, pair, window_output


class Conv2d(Layer):
    """Convolution of images (h, w, in_channels) with out_channels filters; arguments and defaults are PyTorch's.

    Weight (R, S, C, K), bias (K,); output (p, q, out_channels), p = floor((h + 2·padding − R) / stride) + 1.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size, stride=1, padding=0, bias: bool = True):
        self.in_channels = integer("Conv2d", "in_channels", in_channels, 1)
        self.out_channels = integer("Conv2d", "out_channels", out_channels, 1)
        self.kernel_size = pair("Conv2d", "kernel_size", kernel_size, 1)
        self.stride = pair("Conv2d", "stride", stride, 1)
        self.padding = pair("Conv2d", "padding", padding, 0)
        self.bias = bool(bias)

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        H, W, C = image_shape(p, x)
        if self.in_channels != C:
            p.fail(
                expected=f"{self.in_channels} input channels (in_channels)",
                got=f"{C}, from an input of shape {x.shape}",
                fix=f"Set in_channels={C}",
            )
        K = self.out_channels
        P, Q = window_output(p, (H, W), self.kernel_size, self.stride, self.padding)
        init = uniform_fan_in(self.kernel_size[0] * self.kernel_size[1] * C)
        w = p.parameter("weight", (*self.kernel_size, C, K), init)
        b = p.parameter("bias", (K if self.bias else 0,), init)
        y = p.activation((P, Q, K))
        padded = x.data
        if any(self.padding):
            padded = p.buffer((p.chunk, H + 2 * self.padding[0], W + 2 * self.padding[1], C))
            p.forward(pad2d.forward, x.data, padded, self.padding)
        p.forward(conv2d.forward, padded, w.data, b.data, y.data, self.stride)
        p.backward(conv2d.backward_weights, padded, y.grad, w.grad, b.grad, self.stride)
        if x.grad is not None:
            size = conv2d.backward_data_work((p.chunk, H, W, C), (*self.kernel_size, C, K), self.stride, self.padding)
            p.backward(conv2d.backward_data, y.grad, w.data, x.grad, self.stride, self.padding, p.buffer((size,)))
        return y
