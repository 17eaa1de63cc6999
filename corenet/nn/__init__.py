"""Layers, containers and losses; parameters are spelled as PyTorch's, images are (height, width, channels)."""

from .activation import Dropout, Flatten, ReLU
from .container import Residual, Sequential
from .conv import Conv2d
from .description import build, describe
from .dropout2d import Dropout2d
from .global_max import GlobalMaxPool2d
from .group_norm import GroupNorm, LayerNorm
from .layer import Layer
from .linear import Linear
from .loss import CrossEntropy
from .nonlinearity import ELU, GELU, LeakyReLU, Sigmoid, SiLU, Softmax, Tanh
from .norm import BatchNorm2d
from .pool import AvgPool2d, MaxPool2d
from .reshape import Reshape
from .resize import AdaptiveAvgPool2d, GlobalAvgPool2d, Upsample, ZeroPad2d
from .response_norm import LocalResponseNorm

__all__ = [
    "ELU",
    "GELU",
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BatchNorm2d",
    "Conv2d",
    "CrossEntropy",
    "Dropout",
    "Dropout2d",
    "Flatten",
    "GlobalAvgPool2d",
    "GlobalMaxPool2d",
    "GroupNorm",
    "Layer",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LocalResponseNorm",
    "MaxPool2d",
    "ReLU",
    "Reshape",
    "Residual",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "Upsample",
    "ZeroPad2d",
    "build",
    "describe",
]
