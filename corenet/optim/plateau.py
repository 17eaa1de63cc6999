"""The schedule that follows the training: a lower rate when a metric stops improving."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ConfigError
from .schedule import Schedule, positive, whole

MODES, THRESHOLD_MODES = ("min", "max"), ("rel", "abs")


class Plateau(Schedule):
    """The rate times `factor` after more than `patience` epochs without improvement (PyTorch's ReduceLROnPlateau).

    The metric is the loss, with mode "max" the accuracy; validation's, where there is a validation. An epoch improves
    if it is below best · (1 − threshold), with threshold_mode "abs" best − threshold; with mode "max", above
    best · (1 + threshold) or best + threshold. The `cooldown` epochs after a reduction do not count as bad; the rate
    stays at or above min_lr, and changes of at most eps are not made.

    The state (rate, best, bad epochs, cooldown left) changes in `observe` and nowhere else, which the Trainer calls
    after every epoch. It is an argument, too (None: the beginning), so a saved one goes on exactly where it was.
    """

    def __init__(
        self, lr: float, factor: float = 0.1, patience: int = 10, threshold: float = 1e-4, cooldown: int = 0,
        min_lr: float = 0.0, mode: str = "min", threshold_mode: str = "rel", eps: float = 1e-8,
        state: Sequence[Any] | None = None,
    ):  # fmt: skip
        self.lr = positive("Plateau", "lr", lr)
        self.factor = positive("Plateau", "factor", factor)
        if self.factor >= 1:
            raise ConfigError("Plateau(factor=…)", expected="a number above 0 and below 1", got=repr(factor))
        self.patience = whole("Plateau", "patience", patience)
        self.threshold = positive("Plateau", "threshold", threshold, zero=True)
        self.cooldown = whole("Plateau", "cooldown", cooldown)
        self.min_lr = positive("Plateau", "min_lr", min_lr, zero=True)
        for name, value, known in (("mode", mode, MODES), ("threshold_mode", threshold_mode, THRESHOLD_MODES)):
            if value not in known:
                raise ConfigError(f"Plateau({name}=…)", expected=" or ".join(map(repr, known)), got=repr(value))
        self.mode, self.threshold_mode = mode, threshold_mode
        self.eps = positive("Plateau", "eps", eps, zero=True)
        self._current, self._bad, self._cooling = self.lr, 0, 0
        self._best: float | None = None
        if state is not None:
            self._set(state)

    @property
    def state(self) -> list[Any]:
        """[rate, best metric or None, bad epochs, epochs of cooldown left]: what `observe` changes."""
        return [self._current, self._best, self._bad, self._cooling]

    @property
    def watches(self) -> str:
        return "loss" if self.mode == "min" else "accuracy"

    def rate(self, epoch: float) -> float:
        return self._current

    def observe(self, record: Mapping[str, float]) -> None:
        metric = float(record.get(f"val_{self.watches}", record[self.watches]))
        if self._improves(metric):
            self._best, self._bad = metric, 0
        else:
            self._bad += 1
        if self._cooling > 0:
            self._cooling -= 1
            self._bad = 0
        if self._bad > self.patience:
            lower = max(self._current * self.factor, self.min_lr)
            if self._current - lower > self.eps:
                self._current = lower
            self._cooling, self._bad = self.cooldown, 0

    def _improves(self, metric: float) -> bool:
        sign = 1.0 if self.mode == "min" else -1.0
        if self._best is None:
            return sign * metric < math.inf
        relative = self.threshold_mode == "rel"
        bound = self._best * (1 - sign * self.threshold) if relative else self._best - sign * self.threshold
        return sign * metric < sign * bound

    def _set(self, state: Sequence[Any]) -> None:
        if not isinstance(state, Sequence) or len(state) != 4 or not isinstance(state[1], numbers.Real | None):
            expected = "[rate, best metric or None, bad epochs, epochs of cooldown left]"
            raise ConfigError("Plateau(state=…)", expected=expected, got=repr(state))
        current, best, bad, cooling = state
        self._current = positive("Plateau", "state[0]", current, zero=True)
        self._best = None if best is None else float(best)
        self._bad, self._cooling = whole("Plateau", "state[2]", bad), whole("Plateau", "state[3]", cooling)
