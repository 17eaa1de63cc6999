"""A layer's forward pass and gradients in PyTorch, called without autograd.

Tensors are contiguous (channels first) or channels_last, and the batch goes through whole, or by chunks as corenet's
does; the fastest of the four is found for each pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import conv2d, linear

FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
PASSES = ("forward", "data", "weights")


class LayerPeer:
    """A layer, the passes in all ways, and the fastest way of each."""

    def __init__(self, layer: dict[str, Any], batch: int, chunk: int, seconds: float):
        self.passes: dict[str, tuple[Callable[[], Any], int]] = {}
        self.ways: dict[str, str] = {}
        best = dict.fromkeys(PASSES, 0.0)
        for size in sorted({batch, chunk}, reverse=True):
            makers = {"": _dense} if layer["kind"] == "dense" else dict.fromkeys(FORMATS, _convolution)
            for format_name, make in makers.items():
                for name, run in make(layer, size, format_name).items():
                    run()
                    rate = max(_rate(run, size, seconds) for _ in range(3))
                    if rate > best[name]:
                        best[name] = rate
                        self.passes[name] = run, size
                        self.ways[name] = f"{format_name} n={size}".strip()

    def rate(self, name: str, seconds: float) -> float:
        """Samples a second of a pass."""
        return _rate(*self.passes[name], seconds)


def _rate(run: Callable[[], Any], samples: int, seconds: float) -> float:
    begin, calls = time.perf_counter(), 0
    while (passed := time.perf_counter() - begin) < seconds or not calls:
        run()
        calls += 1
    return calls * samples / passed


def _dense(layer: dict[str, Any], n: int, _: str) -> dict[str, Callable[[], Any]]:
    x, dy = torch.randn(n, layer["in"]), torch.randn(n, layer["out"])
    w = torch.randn(layer["out"], layer["in"])
    b = torch.randn(layer["out"]) if layer["bias"] else None

    def weights() -> Any:
        return torch.mm(dy.t(), x), dy.sum(0) if b is not None else None

    return {"forward": lambda: linear(x, w, b), "data": lambda: torch.mm(dy, w), "weights": weights}


def _convolution(layer: dict[str, Any], n: int, format_name: str) -> dict[str, Callable[[], Any]]:
    height, width, channels = layer["input_shape"]
    how = layer["stride"], layer["padding"], layer["dilation"]
    x = torch.randn(n, channels, height, width).to(memory_format=FORMATS[format_name])
    w = torch.randn(layer["out"], channels // layer["groups"], *layer["kernel_size"])
    w = w.to(memory_format=FORMATS[format_name])
    b = torch.randn(layer["out"]) if layer["bias"] else None
    dy = torch.randn_like(conv2d(x, w, b, *how, layer["groups"]))

    def gradient(*mask: bool) -> Callable[[], Any]:
        sizes = [layer["out"]] if layer["bias"] else None
        more = sizes, *how, False, [0, 0], layer["groups"], list(mask)
        return lambda: torch.ops.aten.convolution_backward(dy, x, w, *more)

    return {
        "forward": lambda: conv2d(x, w, b, *how, layer["groups"]),
        "data": gradient(True, False, False),
        "weights": gradient(False, True, layer["bias"]),
    }
