"""RMSprop, Adagrad and Adadelta: rates that adapt to the size of each parameter's gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernels import update
from .optimizer import Optimizer
from .schedule import Schedule, below_one, positive


class RMSprop(Optimizer):
    """RMSprop (Tieleman & Hinton 2012), with centered=True of Graves 2013; PyTorch's formulas and defaults."""

    hyper_size = 5

    def __init__(
        self, lr: float | Schedule = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0,
        momentum: float = 0.0, centered: bool = False, **common: Any,
    ):  # fmt: skip
        super().__init__(lr, common)
        self.alpha = below_one("RMSprop", "alpha", alpha)
        self.eps = positive("RMSprop", "eps", eps)
        self.weight_decay = positive("RMSprop", "weight_decay", weight_decay, zero=True)
        self.momentum = positive("RMSprop", "momentum", momentum, zero=True)
        self.centered = bool(centered)
        self.slots = 3 if centered else 2
        self.operation = update.rmsprop_centered if centered else update.rmsprop

    def fill_hyper(self, hyper: np.ndarray, step: int, rate: float) -> None:
        hyper[:] = rate, self.alpha, self.eps, self.weight_decay, self.momentum


class Adagrad(Optimizer):
    """Adagrad (Duchi, Hazan & Singer 2011), its rate lr / (1 + step · lr_decay); PyTorch's formulas and defaults."""

    slots = 1
    operation = update.adagrad
    hyper_size = 4

    def __init__(
        self, lr: float | Schedule = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0, eps: float = 1e-10, **common: Any,
    ):  # fmt: skip
        super().__init__(lr, common)
        self.lr_decay = positive("Adagrad", "lr_decay", lr_decay, zero=True)
        self.weight_decay = positive("Adagrad", "weight_decay", weight_decay, zero=True)
        self.initial_accumulator_value = positive(
            "Adagrad", "initial_accumulator_value", initial_accumulator_value, zero=True
        )
        self.eps = positive("Adagrad", "eps", eps)

    def fill_hyper(self, hyper: np.ndarray, step: int, rate: float) -> None:
        hyper[0] = rate / (1 + step * self.lr_decay)
        hyper[1], hyper[2], hyper[3] = self.eps, self.weight_decay, self.initial_accumulator_value


class Adadelta(Optimizer):
    """Adadelta (Zeiler 2012); PyTorch's formulas and defaults, with lr=1 the paper's."""

    slots = 2
    operation = update.adadelta
    hyper_size = 4

    def __init__(
        self, lr: float | Schedule = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0, **common: Any,
    ):  # fmt: skip
        super().__init__(lr, common)
        self.rho = below_one("Adadelta", "rho", rho)
        self.eps = positive("Adadelta", "eps", eps)
        self.weight_decay = positive("Adadelta", "weight_decay", weight_decay, zero=True)

    def fill_hyper(self, hyper: np.ndarray, step: int, rate: float) -> None:
        hyper[0], hyper[1], hyper[2], hyper[3] = rate, self.rho, self.eps, self.weight_decay
