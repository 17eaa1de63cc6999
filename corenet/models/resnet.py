"""Residual nets for 32×32×3 images (He et al. 2016, section 4.2), with 1×1 projection shortcuts."""

from __future__ import annotations

from ..errors import ConfigError
from ..nn import AvgPool2d, BatchNorm2d, Conv2d, Flatten, Layer, Linear, ReLU, Residual, Sequential
from ..nn.layer import integer


def resnet(depth: int, classes: int = 10) -> Sequential:
    """The net of 6n + 2 layers: three stages of n basic blocks with 16, 32 and 64 channels."""
    if (integer("resnet", "depth", depth, 8) - 2) % 6:
        raise ConfigError("resnet(depth=…)", expected="6n + 2, such as 20, 32, 44, 56 or 110", got=repr(depth))
    blocks: list[Layer] = []
    channels = 16
    for width in (16, 32, 64):
        for number in range((depth - 2) // 6):
            blocks += _basic_block(channels, width, stride=2 if number == 0 and width != 16 else 1)
            channels = width
    stem = Conv2d(3, 16, 3, padding=1, bias=False), BatchNorm2d(16), ReLU()
    return Sequential(*stem, *blocks, AvgPool2d(8), Flatten(), Linear(64, classes))


def _basic_block(channels_in: int, channels: int, stride: int) -> tuple[Layer, ...]:
    body = Sequential(
        Conv2d(channels_in, channels, 3, stride, padding=1, bias=False), BatchNorm2d(channels), ReLU(),
        Conv2d(channels, channels, 3, padding=1, bias=False), BatchNorm2d(channels),
    )  # fmt: skip
    shortcut = None
    if channels_in != channels or stride != 1:
        shortcut = Sequential(Conv2d(channels_in, channels, 1, stride, bias=False), BatchNorm2d(channels))
    return Residual(body, shortcut), ReLU()


def resnet20(classes: int = 10) -> Sequential:
    """ResNet-20, the smallest of the paper."""
    return resnet(20, classes)


def resnet32(classes: int = 10) -> Sequential:
    """ResNet-32."""
    return resnet(32, classes)


def resnet44(classes: int = 10) -> Sequential:
    """ResNet-44."""
    return resnet(44, classes)


def resnet56(classes: int = 10) -> Sequential:
    """ResNet-56."""
    return resnet(56, classes)


def resnet110(classes: int = 10) -> Sequential:
    """ResNet-110."""
    return resnet(110, classes)
