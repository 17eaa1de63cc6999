"""Learning-rate schedules: the rate as a function of how many epochs have passed (a fraction counts)."""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from typing import Any

from ..errors import ConfigError


def positive(owner: str, name: str, value: Any, *, zero: bool = False) -> float:
    """Check a number given to a schedule or optimizer, Python's or NumPy's; ConfigError names both."""
    good = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    if not good or value < 0 or (value == 0 and not zero):
        raise ConfigError(
            f"{owner}({name}=…)", expected=f"a number {'of at least' if zero else 'above'} 0", got=repr(value)
        )
    return float(value)


class Schedule(ABC):
    """Base of schedules; subclasses keep their constructor's arguments as attributes of the same names."""

    @abstractmethod
    def rate(self, epoch: float) -> float:
        """The learning rate after `epoch` epochs."""


class Constant(Schedule):
    """Always lr."""

    def __init__(self, lr: float):
        self.lr = positive("Constant", "lr", lr)

    def rate(self, epoch: float) -> float:
        return self.lr


class Step(Schedule):
    """lr · gamma^k after k times `every` epochs (PyTorch's StepLR)."""

    def __init__(self, lr: float, every: float, gamma: float = 0.1):
        self.lr = positive("Step", "lr", lr)
        self.every = positive("Step", "every", every)
        self.gamma = positive("Step", "gamma", gamma)

    def rate(self, epoch: float) -> float:
        times = math.floor(epoch / self.every + 1e-9)  # 0.3 / 0.1 is a little less than 3
        return self.lr * self.gamma**times


class Cosine(Schedule):
    """From lr down to `final` along half a cosine over `epochs` epochs, then `final` (Loshchilov & Hutter 2017)."""

    def __init__(self, lr: float, epochs: float, final: float = 0.0):
        self.lr = positive("Cosine", "lr", lr)
        self.epochs = positive("Cosine", "epochs", epochs)
        self.final = positive("Cosine", "final", final, zero=True)

    def rate(self, epoch: float) -> float:
        done = min(epoch / self.epochs, 1.0)
        return self.final + (self.lr - self.final) * (1 + math.cos(math.pi * done)) / 2
