"""Layers, containers and losses; parameters are spelled as PyTorch's, images are (height, width, channels)."""

from . import init
from .activation import Dropout, Flatten, ReLU
from .container import Concat, Identity, Residual, Sequential
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose2d
from .description import build, describe
from .dropout2d import Dropout2d
from .global_max import GlobalMaxPool2d
from .group_norm import GroupNorm, LayerNorm
from .layer import Layer
from .linear import Linear
from .loss import L1, MSE, BinaryCrossEntropy, CrossEntropy, Huber
from .nonlinearity import ELU, GELU, LeakyReLU, Sigmoid, SiLU, Softmax, Tanh
from .norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from .pool import AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d
from .reshape import Reshape
from .resize import AdaptiveAvgPool2d, GlobalAvgPool2d, Upsample, ZeroPad2d
from .response_norm import LocalResponseNorm

__all__ = [
    "ELU",
    "GELU",
    "L1",
    "MSE",
    "AdaptiveAvgPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "BinaryCrossEntropy",
    "Concat",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose2d",
    "CrossEntropy",
    "Dropout",
    "Dropout2d",
    "Flatten",
    "GlobalAvgPool2d",
    "GlobalMaxPool2d",
    "GroupNorm",
    "Huber",
    "Identity",
    "Layer",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LocalResponseNorm",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
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
    "init",
]
