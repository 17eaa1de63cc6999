"""Optimizers and learning-rate schedules."""

from .description import build, describe
from .optimizer import SGD, Adam, Optimizer
from .plateau import Plateau
from .schedule import Constant, Cosine, Exponential, Inverse, MultiStep, Polynomial, Schedule, Step
from .warmup import OneCycle, Warmup, scaled_lr

__all__ = [
    "SGD",
    "Adam",
    "Constant",
    "Cosine",
    "Exponential",
    "Inverse",
    "MultiStep",
    "OneCycle",
    "Optimizer",
    "Plateau",
    "Polynomial",
    "Schedule",
    "Step",
    "Warmup",
    "build",
    "describe",
    "scaled_lr",
]
