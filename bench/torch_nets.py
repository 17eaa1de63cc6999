"""A net of corenet in PyTorch."""

from __future__ import annotations

import torch
from torch import nn

from corenet import nn as ours


class _Residual(nn.Module):
    def __init__(self, body, shortcut):
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


class _Concat(nn.Module):
    def __init__(self, branches):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def to_torch(layer: ours.Layer) -> nn.Module:
    """The same net in PyTorch, with its own initial weights; Flatten orders features otherwise: the same work."""
    match layer:
        case ours.Sequential():
            return nn.Sequential(*map(to_torch, layer))
        case ours.Residual():
            return _Residual(to_torch(layer.body), to_torch(layer.shortcut) if layer.shortcut else nn.Identity())
        case ours.Conv2d():
            sizes = layer.kernel_size, layer.stride, layer.padding
            return nn.Conv2d(layer.in_channels, layer.out_channels, *sizes, layer.dilation, layer.groups, layer.bias)
        case ours.Linear():
            return nn.Linear(layer.in_features, layer.out_features, layer.bias)
        case ours.BatchNorm2d():
            return nn.BatchNorm2d(layer.num_features, layer.eps, layer.momentum)
        case ours.MaxPool2d():
            return nn.MaxPool2d(layer.kernel_size, layer.stride, layer.padding, ceil_mode=layer.ceil_mode)
        case ours.AvgPool2d():
            sizes = layer.kernel_size, layer.stride, layer.padding
            return nn.AvgPool2d(*sizes, layer.ceil_mode, layer.count_include_pad)
        case ours.Dropout():
            return nn.Dropout(layer.p)
        case ours.ReLU():
            return nn.ReLU()
        case ours.Flatten():
            return nn.Flatten()
        case ours.Concat():
            return _Concat(map(to_torch, layer.branches))
        case ours.Identity():
            return nn.Identity()
        case ours.Dropout2d():
            return nn.Dropout2d(layer.p)
        case ours.GlobalAvgPool2d():
            return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        case ours.LocalResponseNorm():
            return nn.LocalResponseNorm(layer.size, layer.alpha, layer.beta, layer.k)
    raise TypeError(f"no PyTorch counterpart of {type(layer).__name__}")
