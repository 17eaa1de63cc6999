"""Adam and AdamW: running means of the gradient and of its square."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..kernels import update
from .optimizer import Optimizer
from .schedule import Schedule, positive


def check_betas(owner: str, betas: Sequence[float]) -> tuple[float, float]:
    """The two betas of an optimizer of Adam's family; ConfigError names the owner and the argument."""
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise ConfigError(f"{owner}(betas=…)", expected="two numbers below 1", got=repr(betas))
    first, second = (positive(owner, f"betas[{i}]", beta, zero=True) for i, beta in enumerate(betas))
    if max(first, second) >= 1:
        raise ConfigError(f"{owner}(betas=…)", expected="two numbers below 1", got=repr(betas))
    return first, second


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015) with L2 weight decay; PyTorch's formulas and defaults."""

    slots = 2
    operation = update.adam
    hyper_size = 7

    def __init__(
        self, lr: float | Schedule = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, **common: Any,
    ):  # fmt: skip
        name = type(self).__name__
        super().__init__(lr, common)
        self.betas = check_betas(name, betas)
        self.eps = positive(name, "eps", eps)
        self.weight_decay = positive(name, "weight_decay", weight_decay, zero=True)

    def fill_hyper(self, hyper: np.ndarray, step: int, rate: float) -> None:
        hyper[0], hyper[1], hyper[2] = rate, *self.betas
        hyper[3], hyper[4] = self.eps, self.weight_decay
        hyper[5], hyper[6] = 1 - self.betas[0] ** (step + 1), 1 - self.betas[1] ** (step + 1)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019); PyTorch's formulas and defaults."""

    operation = update.adamw

    def __init__(
        self, lr: float | Schedule = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, **common: Any,
    ):  # fmt: skip
        super().__init__(lr, betas, eps, weight_decay, **common)
