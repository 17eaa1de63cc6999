"""Global maximum pooling."""

from ..engine import Planner, Tensor
from ..kernels import global_max
from .layer import Layer, image_shape


class GlobalMaxPool2d(Layer):
    """The largest value of each channel: images (h, w, c) → vectors (c,); of equals the first gets the gradient."""

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        H, W, C = image_shape(p, x)
        flat = p.chunk, H * W, C
        y = p.activation((C,))
        which = p.buffer((p.chunk, C), "int32")
        p.forward(global_max.forward, p.view(x.data, flat), y.data, which)
        if x.grad is not None:
            p.backward(global_max.backward, y.grad, which, p.view(x.grad, flat))
        return y
