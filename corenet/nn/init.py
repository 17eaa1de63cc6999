"""Initial values of parameters, from a generator keyed by (seed, parameter): the same net and seed, the same values."""

import math
from typing import Any

import numpy as np


def uniform_fan_in(fan_in: int):
    """U(−1/√fan_in, 1/√fan_in): PyTorch's default for convolutions, dense layers and their biases."""
    bound = 1 / math.sqrt(fan_in)

    def init(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
        return generator.uniform(-bound, bound, shape)

    return init


def constant(value: float):
    """All elements equal."""

    def init(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
        return np.full(shape, value)

    return init
