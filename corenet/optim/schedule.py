"""Learning-rate schedules: the rate as a function of how many epochs have passed (a fraction counts)."""

from __future__ import annotations

import inspect
import math
import numbers
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
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


def below_one(owner: str, name: str, value: Any) -> float:
    """Check a number of [0, 1) given to a schedule or optimizer; ConfigError names both."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not 0 <= float(value) < 1:
        raise ConfigError(f"{owner}({name}=…)", expected="a number of at least 0 and below 1", got=repr(value))
    return float(value)


def whole(owner: str, name: str, value: Any, least: int = 0) -> int:
    """Check an integer given to a schedule; ConfigError names both."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ConfigError(f"{owner}({name}=…)", expected=f"an integer of at least {least}", got=repr(value))
    return int(value)


def written(thing: Any, **more: Any) -> str:
    """A schedule or an optimizer as it could be written, without arguments that are as by default."""
    parameters = inspect.signature(type(thing)).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}
    shown = {name: getattr(thing, name) for name, default in defaults.items() if getattr(thing, name) != default} | more
    texts = (f"{name}={value.lr if isinstance(value, Constant) else value!r}" for name, value in shown.items())
    return f"{type(thing).__name__}({', '.join(texts)})"


class Schedule(ABC):
    """Base of schedules; subclasses keep their constructor's arguments as attributes of the same names."""

    @abstractmethod
    def rate(self, epoch: float) -> float:
        """The learning rate after `epoch` epochs."""

    @property
    def watches(self) -> str:
        """The entry of a record that `observe` reads."""
        return "loss"

    def observe(self, record: Mapping[str, float]) -> None:  # noqa: B027
        """Told an epoch's entry in the history when it is over; only `Plateau` changes by it."""

    def __repr__(self) -> str:
        return written(self)


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


class MultiStep(Schedule):
    """lr · gamma^k after k of the milestones, which are epochs in any order (PyTorch's MultiStepLR)."""

    def __init__(self, lr: float, milestones: Sequence[float], gamma: float = 0.1):
        self.lr = positive("MultiStep", "lr", lr)
        if not isinstance(milestones, Sequence) or isinstance(milestones, str):
            raise ConfigError("MultiStep(milestones=…)", expected="a list of epochs", got=repr(milestones))
        self.milestones = [positive("MultiStep", "milestones", epoch, zero=True) for epoch in milestones]
        self.gamma = positive("MultiStep", "gamma", gamma)

    def rate(self, epoch: float) -> float:
        return self.lr * self.gamma ** bisect_right(sorted(self.milestones), epoch + 1e-9)  # as in Step


class Exponential(Schedule):
    """lr · gamma^epoch, falling within an epoch, too (at whole epochs PyTorch's ExponentialLR)."""

    def __init__(self, lr: float, gamma: float):
        self.lr = positive("Exponential", "lr", lr)
        self.gamma = positive("Exponential", "gamma", gamma)

    def rate(self, epoch: float) -> float:
        return self.lr * self.gamma**epoch


class Inverse(Schedule):
    """lr / (1 + decay · epoch) (Keras's InverseTimeDecay, counted in epochs)."""

    def __init__(self, lr: float, decay: float):
        self.lr = positive("Inverse", "lr", lr)
        self.decay = positive("Inverse", "decay", decay, zero=True)

    def rate(self, epoch: float) -> float:
        return self.lr / (1 + self.decay * epoch)


class Polynomial(Schedule):
    """From lr to `final` as (1 − epoch/epochs)^power, then `final` (with final=0 PyTorch's PolynomialLR)."""

    def __init__(self, lr: float, epochs: float, power: float = 1.0, final: float = 0.0):
        self.lr = positive("Polynomial", "lr", lr)
        self.epochs = positive("Polynomial", "epochs", epochs)
        self.power = positive("Polynomial", "power", power)
        self.final = positive("Polynomial", "final", final, zero=True)

    def rate(self, epoch: float) -> float:
        left = 1 - min(epoch / self.epochs, 1.0)
        return self.final + (self.lr - self.final) * left**self.power


class Cosine(Schedule):
    """From lr down to `final` along half a cosine over `epochs` epochs, then `final` (Loshchilov & Hutter 2017)."""

    def __init__(self, lr: float, epochs: float, final: float = 0.0):
        self.lr = positive("Cosine", "lr", lr)
        self.epochs = positive("Cosine", "epochs", epochs)
        self.final = positive("Cosine", "final", final, zero=True)

    def rate(self, epoch: float) -> float:
        done = min(epoch / self.epochs, 1.0)
        return self.final + (self.lr - self.final) * (1 + math.cos(math.pi * done)) / 2


def as_schedule(owner: str, lr: float | Schedule) -> Schedule:
    """A schedule as it is, a number as one that never changes; ConfigError names the owner."""
    return lr if isinstance(lr, Schedule) else Constant(positive(owner, "lr", lr))
