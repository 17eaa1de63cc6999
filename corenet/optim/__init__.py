"""Optimizers and learning-rate schedules."""

from .adam import Adam, AdamW
from .adaptive import Adadelta, Adagrad, RMSprop
from .common import NO_DECAY, Group
from .description import build, describe
from .layerwise import LAMB, LARS
from .optimizer import SGD, Optimizer
from .plateau import Plateau
from .schedule import Constant, Cosine, Exponential, Inverse, MultiStep, Polynomial, Schedule, Step
from .warmup import OneCycle, Warmup, scaled_lr

__all__ = [
    "LAMB",
    "LARS",
    "NO_DECAY",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Constant",
    "Cosine",
    "Exponential",
    "Group",
    "Inverse",
    "MultiStep",
    "OneCycle",
    "Optimizer",
    "Plateau",
    "Polynomial",
    "RMSprop",
    "Schedule",
    "Step",
    "Warmup",
    "build",
    "describe",
    "scaled_lr",
]
