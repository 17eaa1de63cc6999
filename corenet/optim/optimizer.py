"""Optimizers: how many numbers they keep per parameter, the kernel that updates, and the numbers of each step.

They are elementwise on a flat run of the state vector, so every shard owner updates its own shard and the optimizer's
state is spread over the workers by itself. The arithmetic is in `kernels/update.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ..errors import ConfigError
from ..kernels import update
from ..kernels.operation import Operation
from .schedule import Schedule, as_schedule, positive


class Optimizer(ABC):
    """Base of optimizers; subclasses keep their constructor's arguments as attributes of the same names."""

    slots: int  # numbers kept per parameter
    operation: Operation  # update(low, high, old, new, gradient, *(old and new of each slot), hyper)
    hyper_size: int
    lr: Schedule

    @abstractmethod
    def fill_hyper(self, hyper: np.ndarray, step: int, epoch: float) -> None:
        """Write this step's numbers into hyper (hyper_size,) float64; step counts from 0, epoch may be a fraction."""


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, Nesterov momentum and weight decay; PyTorch's formulas."""

    slots = 1
    operation = update.sgd
    hyper_size = 4

    def __init__(self, lr: float | Schedule, momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False):
        self.lr = as_schedule("SGD", lr)
        self.momentum = positive("SGD", "momentum", momentum, zero=True)
        self.weight_decay = positive("SGD", "weight_decay", weight_decay, zero=True)
        self.nesterov = bool(nesterov)
        if self.nesterov and self.momentum == 0:
            raise ConfigError("SGD(nesterov=True)", expected="momentum above 0", got="0")

    def fill_hyper(self, hyper: np.ndarray, step: int, epoch: float) -> None:
        hyper[0] = self.lr.rate(epoch)
        hyper[1], hyper[2], hyper[3] = self.momentum, self.weight_decay, self.nesterov


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015) with L2 weight decay; PyTorch's formulas and defaults."""

    slots = 2
    operation = update.adam
    hyper_size = 7

    def __init__(
        self, lr: float | Schedule = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):  # fmt: skip
        self.lr = as_schedule("Adam", lr)
        if not isinstance(betas, tuple | list) or len(betas) != 2:
            raise ConfigError("Adam(betas=…)", expected="two numbers below 1", got=repr(betas))
        self.betas = (
            positive("Adam", "betas[0]", betas[0], zero=True),
            positive("Adam", "betas[1]", betas[1], zero=True),
        )
        if max(self.betas) >= 1:
            raise ConfigError("Adam(betas=…)", expected="two numbers below 1", got=repr(betas))
        self.eps = positive("Adam", "eps", eps)
        self.weight_decay = positive("Adam", "weight_decay", weight_decay, zero=True)

    def fill_hyper(self, hyper: np.ndarray, step: int, epoch: float) -> None:
        hyper[0], hyper[1], hyper[2] = self.lr.rate(epoch), *self.betas
        hyper[3], hyper[4] = self.eps, self.weight_decay
        hyper[5], hyper[6] = 1 - self.betas[0] ** (step + 1), 1 - self.betas[1] ** (step + 1)
