"""Optimizers and learning-rate schedules."""

from .description import build, describe
from .optimizer import SGD, Adam, Optimizer
from .schedule import Constant, Cosine, Schedule, Step

__all__ = ["SGD", "Adam", "Constant", "Cosine", "Optimizer", "Schedule", "Step", "build", "describe"]
