"""Pooling layers, PyTorch's conventions: stride defaults to the window, positions are rounded down."""

from ..errors import ConfigError
from ..kernels import pool2d
from .layer import Layer, Planner, Tensor, image_shape, pair, window_output


class _Pool2d(Layer):
    def __init__(self, kernel_size, stride=None, padding=0):
        name = type(self).__name__
        self.kernel_size = pair(name, "kernel_size", kernel_size, 1)
        self.stride = pair(name, "stride", kernel_size if stride is None else stride, 1)
        self.padding = pair(name, "padding", padding, 0)
        if any(2 * pad > size for pad, size in zip(self.padding, self.kernel_size, strict=True)):
            raise ConfigError(f"{name}(padding=…)", expected="at most half of kernel_size", got=repr(padding))

    def geometry(self, p: Planner, x: Tensor):
        H, W, C = image_shape(p, x)
        return (*window_output(p, (H, W), self.kernel_size, self.stride, self.padding), C)


class MaxPool2d(_Pool2d):
    """The largest value of each window; padding never wins."""

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__(kernel_size, stride, padding)
        if self.kernel_size[0] * self.kernel_size[1] > 256:
            raise ConfigError("MaxPool2d(kernel_size=…)", expected="at most 256 places", got=repr(self.kernel_size))

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        y = p.activation(self.geometry(p, x))
        which = p.buffer((p.chunk, *y.shape), "uint8")
        window = self.kernel_size, self.stride, self.padding
        p.forward(pool2d.max_forward, x.data, y.data, which, *window)
        if x.grad is not None:
            p.backward(pool2d.max_backward, y.grad, which, x.grad, *window)
        return y


class AvgPool2d(_Pool2d):
    """The mean of each window; padding counts as zeros (PyTorch's count_include_pad=True)."""

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        y = p.activation(self.geometry(p, x))
        window = self.kernel_size, self.stride, self.padding
        p.forward(pool2d.average_forward, x.data, y.data, *window)
        if x.grad is not None:
            p.backward(pool2d.average_backward, y.grad, x.grad, *window)
        return y
