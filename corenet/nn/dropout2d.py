"""Dropout of whole channels."""

from ..engine import Planner, Tensor
from ..kernels import dropout2d
from .layer import Layer, image_shape, number


class Dropout2d(Layer):
    """In training each channel of an image (h, w, c) is zeroed with probability p, the others divided by 1 − p.

    Nothing in prediction (Tompson et al. 2015).
    """

    def __init__(self, p: float = 0.5):
        self.p = number("Dropout2d", "p", p, "a probability, 0 <= p < 1", lambda p: 0 <= p < 1)

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        H, W, C = image_shape(p, x)
        if not p.training or self.p == 0:
            return x
        y = p.activation(x.shape)
        flat = p.chunk, H * W, C
        kept = p.buffer((p.chunk, C), "uint8")
        x_flat, y_flat = p.view(x.data, flat), p.view(y.data, flat)
        p.forward(dropout2d.forward, x_flat, y_flat, kept, p.samples, p.clock, p.layer_number, self.p)
        if x.grad is not None:
            p.backward(dropout2d.backward, p.view(y.grad, flat), kept, p.view(x.grad, flat), self.p)
        return y
