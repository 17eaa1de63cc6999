"""Nets ready to train, each exactly as in its source, and small; `get` makes one by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from ..engine import make_plan
from ..errors import ConfigError
from ..nn import Sequential
from .basic import digits_cnn, keras_mnist, lenet5, mnist_example, simple_mnist
from .branched import inception_small, unet_small
from .cifar import alexnet_cifar, cifar10_quick, simple_cifar10, vgg_small
from .resnet import resnet, resnet20, resnet32, resnet44, resnet56, resnet110
from .spectral import cnn1d, cnn2d, cnn3d

__all__ = [
    "CNN1D", "CNN2D", "CNN3D", "INPUT_SHAPES", "MODELS", "SimpleCIFAR10", "SimpleMNIST", "alexnet_cifar",
    "cifar10_quick", "classifies", "cnn1d", "cnn2d", "cnn3d", "digits_cnn", "find", "get", "inception_small",
    "keras_mnist", "lenet5", "mnist_example", "resnet", "resnet20", "resnet32", "resnet44", "resnet56", "resnet110",
    "simple_cifar10", "simple_mnist", "unet_small", "vgg_small",
]  # fmt: skip

INPUT_SHAPES: dict[str, tuple[int, int, int]] = {
    "digits_cnn": (8, 8, 1),
    "lenet5": (28, 28, 1),
    "mnist_example": (28, 28, 1),
    "keras_mnist": (28, 28, 1),
    "simple_mnist": (28, 28, 1),
    "cifar10_quick": (32, 32, 3),
    "simple_cifar10": (32, 32, 3),
    "alexnet_cifar": (32, 32, 3),
    "vgg_small": (32, 32, 3),
    "resnet20": (32, 32, 3),
    "resnet32": (32, 32, 3),
    "resnet44": (32, 32, 3),
    "resnet56": (32, 32, 3),
    "resnet110": (32, 32, 3),
    "inception_small": (32, 32, 3),
    "unet_small": (64, 64, 1),
    "cnn1d": (1, 1, 200),
    "cnn2d": (19, 19, 200),
    "cnn3d": (19, 19, 40),
}
MODELS: dict[str, Callable[[], Sequential]] = {name: globals()[name] for name in INPUT_SHAPES}

# As classes are spelled.
SimpleMNIST, SimpleCIFAR10, CNN1D, CNN2D, CNN3D = simple_mnist, simple_cifar10, cnn1d, cnn2d, cnn3d


def find(name: str) -> str:
    """The model's name in MODELS, whatever the case and underscores; ConfigError lists the names and the closest."""
    plain = {known.replace("_", ""): known for known in MODELS}
    given = name.replace("_", "").lower()
    if given not in plain:
        close = difflib.get_close_matches(given, plain, 1)
        raise ConfigError("model", expected="one of " + ", ".join(MODELS), got=repr(name),
                          fix=f"Did you mean {plain[close[0]]!r}?" if close else None)  # fmt: skip
    return plain[given]


def get(name: str) -> Sequential:
    """A new net of that name, with the sizes of INPUT_SHAPES."""
    return MODELS[find(name)]()


def classifies(name: str) -> bool:
    """Whether the net of that name gives one class for each image, rather than for each pixel."""
    return len(make_plan(get(name), INPUT_SHAPES[find(name)], 1).output_shape) == 1
