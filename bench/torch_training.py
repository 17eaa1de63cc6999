"""Training a net in PyTorch as `accuracy.py` and `time_to_accuracy.py` do: eager, channels_last, the rate per step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_nets import to_torch

from corenet import models


def tensors(part: Any, scaling: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of bytes (n, h, w, c), normalised by (mean, std) per channel, as channels_last tensors; and labels."""
    x = torch.from_numpy(np.ascontiguousarray(part.x)).permute(0, 3, 1, 2).float() / 255
    mean, std = (torch.tensor(np.broadcast_to(v, x.shape[1]).copy()).float().view(-1, 1, 1) for v in scaling)
    return ((x - mean) / std).contiguous(memory_format=torch.channels_last), torch.from_numpy(part.y)


def channels_last(model: str) -> torch.nn.Module:
    """A net of corenet with PyTorch's own initial weights."""
    return to_torch(models.get(model)).to(memory_format=torch.channels_last)


def one_cycle(optimizer: Any, rate: float, epochs: int, samples: int, batch: int) -> Any:
    """OneCycle over so many epochs."""
    steps = epochs * -(-samples // batch)
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, cycle_momentum=False)


def epoch(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, batch: int, optimizer: Any, schedule: Any) -> None:
    """Every sample once, in random order."""
    net.train()
    for rows in torch.randperm(len(x)).split(batch):
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
        schedule.step()


def accuracy(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """The share of images that are recognised."""
    net.eval()
    with torch.inference_mode():
        hits = [(net(a).argmax(1) == b).sum() for a, b in zip(x.split(500), y.split(500), strict=True)]
    return int(sum(hits)) / len(x)
