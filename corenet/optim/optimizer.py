"""Optimizers: how many numbers they keep per parameter, the kernel that updates, and the numbers of each step.

They are elementwise on a flat run of the state vector, so every shard owner updates its own shard and the optimizer's
state is spread over the workers by itself. The arithmetic is in `kernels/update.py`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..kernels import update
from ..kernels.operation import Operation
from .common import Common, Group
from .schedule import Schedule, as_schedule, positive, written


class Optimizer(ABC):
    """Base of optimizers; subclasses keep their constructor's arguments as attributes of the same names.

    All take the options of `Common` as keyword arguments, too.
    """

    slots: int  # numbers kept per parameter
    operation: Operation  # update(low, high, old, new, gradient, *(old and new of each slot), hyper)
    hyper_size: int
    weight_decay: float
    lr_scale = 1.0  # of the schedule's rate

    def __init__(self, lr: float | Schedule, common: dict[str, Any]):
        name = type(self).__name__
        self.lr = as_schedule(name, lr)
        self.common = Common.checked(name, common)

    def __repr__(self) -> str:
        common = {k: v for k, v in vars(self.common).items() if v != getattr(Common, k)}
        return written(self, **common)

    def of_group(self, group: Group | None) -> Optimizer:
        """The optimizer that a group's parameters have; None: those of no group."""
        if group is None:
            return self
        other = copy.copy(self)
        if group.weight_decay is not None:
            other.weight_decay = float(group.weight_decay)
        other.lr_scale = float(group.lr_scale)
        return other

    @abstractmethod
    def fill_hyper(self, hyper: np.ndarray, step: int, rate: float) -> None:
        """Write this step's numbers into hyper (hyper_size,) float64; step counts from 0, rate is the learning rate."""


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, Nesterov momentum and weight decay; PyTorch's formulas."""

    slots = 1
    operation = update.sgd
    hyper_size = 4

    def __init__(
        self,
        lr: float | Schedule,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        **common: Any,
    ):
        super().__init__(lr, common)
        self.momentum = positive("SGD", "momentum", momentum, zero=True)
        self.weight_decay = positive("SGD", "weight_decay", weight_decay, zero=True)
        self.nesterov = bool(nesterov)
        if self.nesterov and self.momentum == 0:
            raise ConfigError("SGD(nesterov=True)", expected="momentum above 0", got="0")

    def fill_hyper(self, hyper: np.ndarray, step: int, rate: float) -> None:
        hyper[0] = rate
        hyper[1], hyper[2], hyper[3] = self.momentum, self.weight_decay, self.nesterov
