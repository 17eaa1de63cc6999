"""More of corenet's layers in PyTorch: part of the table in `torch_nets.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class LayerNorm(nn.Module):
    """Over the last axes of (n, h, w, c); parameters have their axes in reverse, as `weight_to_torch` gives them."""

    def __init__(self, shape, eps, affine):
        super().__init__()
        self.shape, self.eps = shape, eps
        parameters = [nn.Parameter(torch.zeros(shape[::-1])) if affine else None for _ in range(2)]
        self.weight, self.bias = parameters

    def forward(self, x):
        x = x.movedim(1, -1)
        w, b = (p if p is None else p.permute(*range(p.ndim)[::-1]) for p in (self.weight, self.bias))
        return nn.functional.layer_norm(x, self.shape, w, b, self.eps).movedim(-1, 1)


class Masked2d(nn.Module):
    """Dropout of whole channels with a given mask (chunk, c)."""

    def __init__(self, p, masks):
        super().__init__()
        self.p, self.masks = p, masks

    def forward(self, x):
        if self.p == 0:
            return x
        kept = torch.from_numpy(next(self.masks)[: len(x)].copy()).to(x.dtype)
        return x * kept[:, :, None, None] / (1 - self.p)


class Concat(nn.Module):
    def __init__(self, branches):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class Reshape(nn.Module):
    """In corenet's order, channels fastest."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return x.movedim(1, -1).reshape(len(x), *self.shape).movedim(-1, 1)


def more_counterparts(masks) -> dict[str, Any]:
    """How to make each of these layers in PyTorch."""

    def upsample(m):
        return nn.Upsample(
            scale_factor=m.scale_factor, mode=m.mode, align_corners=None if m.mode == "nearest" else m.align_corners
        )

    return {
        "LeakyReLU": lambda m: nn.LeakyReLU(m.negative_slope),
        "ELU": lambda m: nn.ELU(m.alpha),
        "GELU": lambda m: nn.GELU(m.approximate),
        "SiLU": lambda m: nn.SiLU(),
        "Tanh": lambda m: nn.Tanh(),
        "Sigmoid": lambda m: nn.Sigmoid(),
        "Softmax": lambda m: nn.Softmax(dim=1),
        "GroupNorm": lambda m: nn.GroupNorm(m.num_groups, m.num_channels, m.eps, m.affine),
        "LayerNorm": lambda m: LayerNorm(m.normalized_shape, m.eps, m.elementwise_affine),
        "LocalResponseNorm": lambda m: nn.LocalResponseNorm(m.size, m.alpha, m.beta, m.k),
        "Dropout2d": lambda m: Masked2d(m.p, masks),
        "AdaptiveAvgPool2d": lambda m: nn.AdaptiveAvgPool2d(m.output_size),
        "GlobalAvgPool2d": lambda m: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        "GlobalMaxPool2d": lambda m: nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten()),
        "Upsample": upsample,
        "ZeroPad2d": lambda m: nn.ZeroPad2d(m.padding),
        "Reshape": lambda m: Reshape(m.shape),
    }
