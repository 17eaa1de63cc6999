"""Shapes of images and of windows on them, in one to three dimensions.

Kernels know three dimensions only; a layer of fewer has a depth, or a depth and a height, of one. Functions here work
on triples (depth, height, width), and complain in the words of the layer.
"""

from __future__ import annotations

from typing import Any

from ..engine import Planner, Tensor
from ..errors import ConfigError
from .layer import integer

Triple = tuple[int, int, int]

AXES = ("depth", "height", "width")
LEAST = {1: "a sequence of length {} or more", 2: "an image of at least {} pixels", 3: "a volume of at least {} voxels"}


def per_axis(owner: str, name: str, value: Any, least: int, dims: int) -> tuple[int, ...]:
    """An int, or one for each of `dims` axes, as a tuple; ConfigError names the layer and the argument."""
    values = tuple(value) if isinstance(value, tuple | list) else (value,) * dims
    if len(values) != dims:
        expected = "an integer" + (f" or {dims} of them" if dims > 1 else "")
        raise ConfigError(f"{owner}({name}=…)", expected=expected, got=repr(value))
    return tuple(integer(owner, name, one, least) for one in values)


def lift(values: tuple[int, ...], fill: int) -> Triple:
    """Values per axis as a triple: axes that the layer does not have get `fill`."""
    return (fill,) * (3 - len(values)) + values  # type: ignore[return-value]


def described(dims: int) -> str:
    """The shape of samples with `dims` spatial axes, in words."""
    axes = ("length",) if dims == 1 else AXES[3 - dims :]
    return f"({', '.join((*axes, 'channels'))})"


def image_as(shape: tuple[int, ...], dims: int) -> str:
    """How to come from an image of that shape, which is what data sets hold, to `dims` spatial axes, in words."""
    sizes = f"{shape[0]}, {shape[1] * shape[2]}" if dims == 1 else ", ".join((*AXES, "channels"))
    return f"Data sets hold images: put Reshape({sizes}) before it"


def spatial(p: Planner, x: Tensor, dims: int) -> tuple[Triple, int]:
    """The size (depth, height, width) and channels of an input that has to have `dims` spatial axes."""
    if len(x.shape) != dims + 1:
        place = image_as(x.shape, dims) if len(x.shape) == 3 else "Place it before Flatten and Linear"
        fix = f"{place}, or take the layer of other dimensions"
        p.fail(expected=f"samples of shape {described(dims)}", got=f"input of shape {x.shape}", fix=fix)
    return lift(x.shape[:-1], 1), x.shape[-1]


def positions(
    p: Planner, size: Triple, extent: Triple, stride: Triple, padding: Triple, dims: int, *, ceil: bool = False
) -> Triple:
    """How many places a window of `extent` has along each axis, with `padding` in all (both sides), PyTorch's rule.

    With `ceil` a last window may reach beyond the image, if it begins inside the image or the padding before it.
    """
    counts = []
    for s, e, t, pad in zip(size, extent, stride, padding, strict=True):
        room = s + pad - e
        count = room // t + 1
        if ceil and room % t and room >= 0 and count * t < s + pad // 2:
            count += 1
        counts.append(count)
    if min(counts) < 1:
        least = "×".join(str(max(1, e - pad)) for e, pad in list(zip(extent, padding, strict=True))[3 - dims :])
        p.fail(
            expected=LEAST[dims].format(least),
            got="×".join(map(str, size[3 - dims :])),
            fix="Use a smaller window, more padding, or fewer pooling layers before it",
        )
    return tuple(counts)  # type: ignore[return-value]
