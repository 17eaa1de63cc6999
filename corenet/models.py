"""The nets that corenet is measured on, each exactly as in its source, and small."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from .errors import ConfigError
from .nn import AvgPool2d, BatchNorm2d, Conv2d, Dropout, Flatten, Linear, MaxPool2d, ReLU, Residual, Sequential


def digits_cnn() -> Sequential:
    """The smoke-test net for 8×8×1 images: conv 16, conv 32, FC 64, FC 10."""
    return Sequential(
        Conv2d(1, 16, 3, padding=1), ReLU(),
        Conv2d(16, 32, 3, padding=1), ReLU(), MaxPool2d(2),
        Flatten(), Linear(512, 64), ReLU(), Linear(64, 10),
    )  # fmt: skip


def lenet5() -> Sequential:
    """LeNet-5 for 28×28×1 images (LeCun et al. 1998, with ReLU and max-pooling)."""
    return Sequential(
        Conv2d(1, 6, 5, padding=2), ReLU(), MaxPool2d(2),
        Conv2d(6, 16, 5), ReLU(), MaxPool2d(2),
        Flatten(), Linear(400, 120), ReLU(), Linear(120, 84), ReLU(), Linear(84, 10),
    )  # fmt: skip


def mnist_example() -> Sequential:
    """The net of PyTorch's MNIST example, for 28×28×1 images: 1,199,882 parameters."""
    return Sequential(
        Conv2d(1, 32, 3), ReLU(),
        Conv2d(32, 64, 3), ReLU(), MaxPool2d(2), Dropout(0.25),
        Flatten(), Linear(9216, 128), ReLU(), Dropout(0.5), Linear(128, 10),
    )  # fmt: skip


def keras_mnist() -> Sequential:
    """The net of Keras's simple MNIST example, for 28×28×1 images: 34,826 parameters."""
    return Sequential(
        Conv2d(1, 32, 3), ReLU(), MaxPool2d(2),
        Conv2d(32, 64, 3), ReLU(), MaxPool2d(2),
        Flatten(), Dropout(0.5), Linear(1600, 10),
    )  # fmt: skip


def cifar10_quick() -> Sequential:
    """Caffe's CIFAR-10 "quick" net for 32×32×3 images, pooling rounded down."""
    return Sequential(
        Conv2d(3, 32, 5, padding=2), MaxPool2d(3, 2), ReLU(),
        Conv2d(32, 32, 5, padding=2), ReLU(), AvgPool2d(3, 2),
        Conv2d(32, 64, 5, padding=2), ReLU(), AvgPool2d(3, 2),
        Flatten(), Linear(576, 64), Linear(64, 10),
    )  # fmt: skip


def vgg_small() -> Sequential:
    """A small VGG with batch normalisation for 32×32×3 images (Simonyan & Zisserman 2015)."""

    def block(channels_in: int, channels_out: int):
        return Conv2d(channels_in, channels_out, 3, padding=1, bias=False), BatchNorm2d(channels_out), ReLU()

    return Sequential(
        *block(3, 32), *block(32, 32), MaxPool2d(2),
        *block(32, 64), *block(64, 64), MaxPool2d(2),
        *block(64, 128), MaxPool2d(2),
        Flatten(), Linear(2048, 128), ReLU(), Linear(128, 10),
    )  # fmt: skip


def resnet20() -> Sequential:
    """ResNet-20 for 32×32×3 images, with 1×1 projection shortcuts (He et al. 2016)."""

    def basic_block(channels_in: int, channels: int, stride: int):
        body = Sequential(
            Conv2d(channels_in, channels, 3, stride, padding=1, bias=False), BatchNorm2d(channels), ReLU(),
            Conv2d(channels, channels, 3, padding=1, bias=False), BatchNorm2d(channels),
        )  # fmt: skip
        shortcut = None
        if channels_in != channels or stride != 1:
            shortcut = Sequential(Conv2d(channels_in, channels, 1, stride, bias=False), BatchNorm2d(channels))
        return Residual(body, shortcut), ReLU()

    blocks: list = []
    channels = 16
    for width in (16, 32, 64):
        for number in range(3):
            blocks += basic_block(channels, width, 2 if number == 0 and width != 16 else 1)
            channels = width
    stem = Conv2d(3, 16, 3, padding=1, bias=False), BatchNorm2d(16), ReLU()
    return Sequential(*stem, *blocks, AvgPool2d(8), Flatten(), Linear(64, 10))


INPUT_SHAPES: dict[str, tuple[int, int, int]] = {
    "digits_cnn": (8, 8, 1),
    "lenet5": (28, 28, 1),
    "mnist_example": (28, 28, 1),
    "keras_mnist": (28, 28, 1),
    "cifar10_quick": (32, 32, 3),
    "vgg_small": (32, 32, 3),
    "resnet20": (32, 32, 3),
}
MODELS: dict[str, Callable[[], Sequential]] = {name: globals()[name] for name in INPUT_SHAPES}


def get(name: str) -> Sequential:
    """A new net of that name; ConfigError lists the names and the closest one."""
    if name not in MODELS:
        close = difflib.get_close_matches(name, MODELS, 1)
        raise ConfigError("model", expected="one of " + ", ".join(MODELS), got=repr(name),
                          fix=f"Did you mean {close[0]!r}?" if close else None)  # fmt: skip
    return MODELS[name]()
