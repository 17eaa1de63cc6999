"""Nets whose branches are joined by Concat."""

from __future__ import annotations

from ..nn import (
    BatchNorm2d,
    Concat,
    Conv2d,
    ConvTranspose2d,
    GlobalAvgPool2d,
    Identity,
    Layer,
    Linear,
    MaxPool2d,
    ReLU,
    Sequential,
)


def inception_small(classes: int = 10) -> Sequential:
    """The small Inception of Zhang et al. 2017, "Understanding deep learning …", figure 3, for 32×32×3 images.

    The paper crops to 28×28; any size is averaged away before the last layer.
    """

    def conv(channels_in: int, channels: int, kernel: int, stride: int = 1) -> Sequential:
        padding = kernel // 2
        return Sequential(Conv2d(channels_in, channels, kernel, stride, padding), BatchNorm2d(channels), ReLU())

    def inception(channels_in: int, ones: int, threes: int) -> Concat:
        return Concat(conv(channels_in, ones, 1), conv(channels_in, threes, 3))

    def downsample(channels_in: int, threes: int) -> Concat:
        return Concat(conv(channels_in, threes, 3, 2), MaxPool2d(3, 2, padding=1))

    return Sequential(
        conv(3, 96, 3),
        inception(96, 32, 32), inception(64, 32, 48), downsample(80, 80),
        inception(160, 112, 48), inception(160, 96, 64), inception(160, 80, 80), inception(160, 48, 96),
        downsample(144, 96),
        inception(240, 176, 160), inception(336, 176, 160),
        GlobalAvgPool2d(), Linear(336, classes),
    )  # fmt: skip


def unet_small(classes: int = 2, in_channels: int = 1) -> Sequential:
    """A small U-Net (Ronneberger, Fischer & Brox 2015): images (h, w, in_channels) → a logit per class (h, w, classes).

    Three levels of 16, 32 and 64 channels, padded so that the output is as large as the image; h and w divide by 4.
    """

    def convs(channels_in: int, channels: int) -> tuple[Layer, ...]:
        return (
            Conv2d(channels_in, channels, 3, padding=1), ReLU(),
            Conv2d(channels, channels, 3, padding=1), ReLU(),
        )  # fmt: skip

    def level(channels_in: int, channels: int, *deeper: int) -> Sequential:
        if not deeper:
            return Sequential(*convs(channels_in, channels))
        below = Sequential(MaxPool2d(2), level(channels, *deeper), ConvTranspose2d(deeper[0], channels, 2, 2))
        return Sequential(*convs(channels_in, channels), Concat(Identity(), below), *convs(2 * channels, channels))

    return Sequential(level(in_channels, 16, 32, 64), Conv2d(16, classes, 1))
