"""corenet's layers in PyTorch, layer by layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch_nets_layers import Concat, more_counterparts

from corenet import nn as core
from corenet.nn.description import LAYERS


class Flatten(nn.Module):
    """Images (n, c, h, w) → (n, h·w·c): corenet's order, channels fastest."""

    def forward(self, x):
        return x.movedim(1, -1).flatten(1)


class Residual(nn.Module):
    def __init__(self, body, shortcut):
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


class Masked(nn.Module):
    """Dropout with a given mask, in corenet's layout; nothing in evaluation."""

    def __init__(self, p, masks):
        super().__init__()
        self.p, self.masks = p, masks

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        kept = torch.from_numpy(next(self.masks)[: len(x)].copy()).to(x.dtype)
        kept = kept.reshape(len(x), *x.shape[2:], x.shape[1]).movedim(-1, 1)
        return x * kept / (1 - self.p)


def counterparts(masks) -> dict[str, Any]:
    """How to make each layer of corenet in PyTorch; `masks` yields the dropout masks in forward order."""

    def convert(layer):
        return to_torch(layer, masks)

    def conv(kind):
        return lambda m: kind(
            m.in_channels, m.out_channels, m.kernel_size, m.stride, m.padding, m.dilation, m.groups, m.bias
        )

    def transpose(m):
        more = m.output_padding, m.groups, m.bias, m.dilation
        return nn.ConvTranspose2d(m.in_channels, m.out_channels, m.kernel_size, m.stride, m.padding, *more)

    def maximum(kind):
        return lambda m: kind(m.kernel_size, m.stride, m.padding, ceil_mode=m.ceil_mode)

    def average(kind):
        return lambda m: kind(m.kernel_size, m.stride, m.padding, m.ceil_mode, m.count_include_pad)

    def batch_norm(kind):
        return lambda m: kind(m.num_features, m.eps, m.momentum)

    return {
        "Conv1d": conv(nn.Conv1d),
        "Conv2d": conv(nn.Conv2d),
        "Conv3d": conv(nn.Conv3d),
        "ConvTranspose2d": transpose,
        "Linear": lambda m: nn.Linear(m.in_features, m.out_features, bias=m.bias),
        "ReLU": lambda m: nn.ReLU(),
        "MaxPool1d": maximum(nn.MaxPool1d),
        "MaxPool2d": maximum(nn.MaxPool2d),
        "MaxPool3d": maximum(nn.MaxPool3d),
        "AvgPool1d": average(nn.AvgPool1d),
        "AvgPool2d": average(nn.AvgPool2d),
        "AvgPool3d": average(nn.AvgPool3d),
        "Flatten": lambda m: Flatten(),
        "Dropout": lambda m: Masked(m.p, masks),
        "BatchNorm1d": batch_norm(nn.BatchNorm1d),
        "BatchNorm2d": batch_norm(nn.BatchNorm2d),
        "BatchNorm3d": batch_norm(nn.BatchNorm3d),
        "Sequential": lambda m: nn.Sequential(*map(convert, m.layers)),
        "Residual": lambda m: Residual(convert(m.body), nn.Identity() if m.shortcut is None else convert(m.shortcut)),
        "Concat": lambda m: Concat(map(convert, m.branches)),
        "Identity": lambda m: nn.Identity(),
        **more_counterparts(masks),
    }


def to_torch(layer: core.Layer, masks=None) -> nn.Module:
    """The same layer in PyTorch, in double, with parameters of its own."""
    return counterparts(masks)[type(layer).__name__](layer).double()


def missing() -> set[str]:
    """Layers without a counterpart here."""
    return set(LAYERS) - set(counterparts(None))


# Layouts: (…, C, K) ↔ (K, C, …), (in, out) ↔ (out, in), images (n, …, c) ↔ (n, c, …).


def images_to_torch(x: np.ndarray, dtype=torch.float64):
    return torch.from_numpy(np.ascontiguousarray(x)).to(dtype).movedim(-1, 1).contiguous()


def images_from_torch(x) -> np.ndarray:
    return x.detach().movedim(1, -1).numpy()


def weight_to_torch(w: np.ndarray):
    axes = [*range(w.ndim)]
    return torch.from_numpy(np.ascontiguousarray(w.transpose(axes[:-3:-1] + axes[:-2])))


def weight_from_torch(w) -> np.ndarray:
    axes = [*range(w.ndim)]
    return w.detach().numpy().transpose(axes[2:] + axes[1::-1])


def load(module: nn.Module, arrays: dict[str, np.ndarray]) -> None:
    """Put corenet's arrays, in the order of the net, into a module's parameters and running statistics."""
    parameters = [a for name, a in arrays.items() if "running_" not in name]
    statistics = [a for name, a in arrays.items() if "running_" in name]
    buffers = [b for name, b in module.named_buffers() if "running_" in name]
    with torch.no_grad():
        for own, theirs in ((list(module.parameters()), parameters), (buffers, statistics)):
            assert len(own) == len(theirs)
            for target, array in zip(own, theirs, strict=True):
                target.copy_(weight_to_torch(array))
