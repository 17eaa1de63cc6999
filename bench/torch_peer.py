"""The opponent: PyTorch's CPU training step of the same net, in a process of its own, told what to do line by line.

    python bench/torch_peer.py MODEL BATCH THREADS      then on standard input "run IMAGES"; answers are JSON lines

It uses the fastest of eager, channels_last and torch.compile, found by measuring all three first. Data are in memory as
normalised float32 tensors, and batches are plain slices: PyTorch pays for no shuffling, corenet does.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from torch import nn

from corenet import models
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


class Peer:
    """One way of running the net."""

    def __init__(self, model: str, batch: int, way: str):
        self.net = to_torch(models.get(model))
        height, width, channels = models.INPUT_SHAPES[model]
        self.format = torch.contiguous_format if way == "eager" else torch.channels_last
        self.net.to(memory_format=self.format)
        step = torch.compile(self.net) if way == "compile" else self.net
        self.forward, self.batch = step, batch
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.01, momentum=0.9)
        self.x = torch.randn(batch * 16, channels, height, width).to(memory_format=self.format)
        self.y = torch.randint(0, 10, (batch * 16,))

    def run(self, images: int) -> float:
        """Seconds to train on that many images."""
        begin = time.perf_counter()
        for number in range(images // self.batch):
            first = number % 16 * self.batch
            x, y = self.x[first : first + self.batch], self.y[first : first + self.batch]
            self.optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(self.forward(x), y).backward()
            self.optimizer.step()
        return time.perf_counter() - begin


def main() -> None:
    model, batch, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    ways: dict[str, Peer] = {}
    rates: dict[str, float] = {}
    for way in ("eager", "channels_last", "compile"):
        try:
            peer = Peer(model, batch, way)
            peer.run(3 * batch)
            rates[way] = max(8 * batch / peer.run(8 * batch) for _ in range(3))
            ways[way] = peer
        except Exception as error:  # torch.compile needs a C++ compiler
            print(f"{way}: {type(error).__name__}", file=sys.stderr)
    best = max(rates, key=rates.__getitem__)
    print(json.dumps({"way": best, "rates": rates}), flush=True)
    for line in sys.stdin:
        images = int(line.split()[1])
        print(json.dumps({"images_per_second": images // batch * batch / ways[best].run(images)}), flush=True)


if __name__ == "__main__":
    main()
