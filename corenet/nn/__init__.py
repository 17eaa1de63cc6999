"""Layers, containers and losses; parameters are spelled as PyTorch's, images are (height, width, channels)."""

from .activation import Dropout, Flatten, ReLU
from .container import Residual, Sequential
from .conv import Conv2d
from .description import build, describe
from .layer import Layer
from .linear import Linear
from .loss import CrossEntropy
from .norm import BatchNorm2d
from .pool import AvgPool2d, MaxPool2d

__all__ = [
    "AvgPool2d",
    "BatchNorm2d",
    "Conv2d",
    "CrossEntropy",
    "Dropout",
    "Flatten",
    "Layer",
    "Linear",
    "MaxPool2d",
    "ReLU",
    "Residual",
    "Sequential",
    "build",
    "describe",
]
