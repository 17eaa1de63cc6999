"""Layers that change an image's height and width without weights: each a pair of matrices for kernels/resize.py."""

from ..engine import Planner, Tensor
from ..errors import ConfigError
from ..kernels import resize
from .layer import Layer, image_shape, integer, pair


class Upsample(Layer):
    """Images (h, w, c) enlarged `scale_factor` times, by an integer or (by rows, by columns).

    mode "nearest" repeats pixels; "bilinear" interpolates between their middles or, with align_corners, so that the
    corner pixels' middles stay corners.
    """

    def __init__(self, scale_factor, mode: str = "nearest", align_corners: bool = False):
        self.scale_factor = pair("Upsample", "scale_factor", scale_factor, 1)
        if mode not in ("nearest", "bilinear"):
            raise ConfigError("Upsample(mode=…)", expected="'nearest' or 'bilinear'", got=repr(mode))
        self.mode, self.align_corners = mode, bool(align_corners)
        if self.align_corners and mode == "nearest":
            raise ConfigError("Upsample(align_corners=…)", expected="False with mode='nearest'", got="True")

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        H, W, _ = image_shape(p, x)
        rows, columns = (
            resize.nearest(size, scale)
            if self.mode == "nearest"
            else resize.linear(size, scale, self.align_corners)
            for size, scale in zip((H, W), self.scale_factor, strict=True)
        )  # fmt: skip
        return _resample(p, x, rows, columns)


class AdaptiveAvgPool2d(Layer):
    """Images (h, w, c) averaged over a grid of output_size (an integer, or rows and columns) windows.

    Window p of P covers rows ⌊p·h/P⌋ … ⌈(p+1)·h/P⌉ − 1, as in PyTorch: windows overlap where P does not divide h.
    """

    def __init__(self, output_size):
        self.output_size = pair("AdaptiveAvgPool2d", "output_size", output_size, 1)

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        H, W, _ = image_shape(p, x)
        P, Q = self.output_size
        return _resample(p, x, resize.average(H, P), resize.average(W, Q))


class GlobalAvgPool2d(Layer):
    """The mean of each channel (Lin, Chen & Yan 2014): images (h, w, c) → vectors (c,)."""

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        H, W, C = image_shape(p, x)
        return p.reshape(_resample(p, x, resize.average(H, 1), resize.average(W, 1)), (C,))


class ZeroPad2d(Layer):
    """Images (h, w, c) with a border of zeros: `padding` pixels on each side, or (left, right, top, bottom)."""

    def __init__(self, padding):
        sides = tuple(padding) if isinstance(padding, tuple | list) else (padding,) * 4
        if len(sides) != 4:
            raise ConfigError(
                "ZeroPad2d(padding=…)", expected="an integer, or (left, right, top, bottom)", got=repr(padding)
            )
        left, right, top, bottom = (integer("ZeroPad2d", "padding", side, 0) for side in sides)
        self.padding = left, right, top, bottom

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        H, W, _ = image_shape(p, x)
        left, right, top, bottom = self.padding
        return _resample(p, x, resize.border(H, top, bottom), resize.border(W, left, right))


def _resample(p: Planner, x: Tensor, rows, columns) -> Tensor:
    """y = rows · x · columnsᵀ for each channel; backward is the same with both matrices transposed."""
    y = p.activation((rows.shape[0], columns.shape[0], x.shape[2]))
    p.forward(resize.resample, x.data, y.data, rows, resize.bands(rows), columns, resize.bands(columns))
    if x.grad is not None:
        rows, columns = rows.T.copy(), columns.T.copy()
        p.backward(resize.resample, y.grad, x.grad, rows, resize.bands(rows), columns, resize.bands(columns))
    return y
