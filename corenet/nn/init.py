"""Initial values of parameters, from a generator keyed by (seed, parameter): the same net and seed, the same values.

Layers take an initializer by name, `Linear(9, 3, weight_init="he_normal")`, or made with arguments of its own,
`Linear(9, 3, weight_init=init.orthogonal(gain=2))`. It is called with a NumPy generator and a shape. Weights are
(…, in, out): (R, S, C, K) of a convolution, (in, out) of a dense layer; the axes before are the receptive field, whose
size multiplies both fans:

    fan_in = R·S·C        fan_out = R·S·K        of a dense layer in and out

Where PyTorch and Keras give one name to two things, the name here means PyTorch's.
"""

from __future__ import annotations

import difflib
import math
from typing import Any

import numpy as np

from ..errors import ConfigError, ShapeError
from .initializer import Fill, Initializer, initializer
from .layer import integer, number

MODES = ("fan_in", "fan_out")
TWO_SIGMA = 0.87962566103423978  # the standard deviation of a normal distribution that is cut off at 2
LARGEST = float(np.finfo(np.float32).max)  # parameters are float32
LEAST_MASS = 1e-3  # of a truncated normal: what is drawn outside is drawn again


def _finite(owner: str, name: str, value: Any) -> float:
    return number(owner, name, value, "a finite number, in float32", lambda v: abs(v) <= LARGEST)


def _above(owner: str, name: str, value: Any) -> float:
    return number(owner, name, value, "a finite number above 0, in float32", lambda v: 0 < v <= LARGEST)


def _interval(owner: str, low: Any, high: Any) -> tuple[float, float]:
    low = _finite(owner, "low", low)
    expected = f"a finite number above low={low!r}, in float32"
    return low, number(owner, "high", high, expected, lambda value: low < value <= LARGEST)


def _mode(owner: str, mode: Any) -> str:
    if mode not in MODES:
        raise ConfigError(f"{owner}(mode=…)", expected=" or ".join(map(repr, MODES)), got=repr(mode))
    return mode


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight."""
    receptive = math.prod(shape[:-2])
    return receptive * shape[-2], receptive * shape[-1]


def gain(nonlinearity: str, slope: float = 0.01) -> float:
    """What keeps the variance through an activation, PyTorch's calculate_gain; slope: of "leaky_relu"."""
    leaky = math.sqrt(2 / (1 + slope**2))
    gains = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "leaky_relu": leaky, "selu": 3 / 4}
    if nonlinearity not in gains:
        expected = "one of " + ", ".join(map(repr, gains))
        raise ConfigError("gain(nonlinearity=…)", expected=expected, got=repr(nonlinearity))
    return gains[nonlinearity]


# Constants and plain distributions.


@initializer()
def constant(value: float) -> Fill:
    """All elements equal."""
    value = _finite("constant", "value", value)
    return lambda generator, shape: np.full(shape, value)


@initializer()
def zeros() -> Fill:
    """All 0: Keras's default for biases."""
    return constant(0.0)


@initializer()
def ones() -> Fill:
    """All 1."""
    return constant(1.0)


@initializer()
def normal(mean: float = 0.0, std: float = 1.0) -> Fill:
    """N(mean, std²)."""
    mean, std = _finite("normal", "mean", mean), _above("normal", "std", std)
    return lambda generator, shape: generator.normal(mean, std, shape)


@initializer()
def uniform(low: float = 0.0, high: float = 1.0) -> Fill:
    """U(low, high)."""
    low, high = _interval("uniform", low, high)
    return lambda generator, shape: generator.uniform(low, high, shape)


@initializer()
def truncated_normal(mean: float = 0.0, std: float = 1.0, low: float = -2.0, high: float = 2.0) -> Fill:
    """N(mean, std²) without what lies outside of low … high (PyTorch's a and b, values and not multiples of std)."""
    mean, std = _finite("truncated_normal", "mean", mean), _above("truncated_normal", "std", std)
    low, high = _interval("truncated_normal", low, high)
    edges = [math.erf((edge - mean) / (std * math.sqrt(2))) for edge in (low, high)]
    if (edges[1] - edges[0]) / 2 < LEAST_MASS:
        got = f"low={low!r}, high={high!r} for mean={mean!r}, std={std!r}"
        raise ConfigError("truncated_normal(low=…, high=…)", expected="an interval that values fall into", got=got)

    def init(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
        values = generator.normal(mean, std, shape)
        while (outside := (values < low) | (values > high)).any():
            values[outside] = generator.normal(mean, std, np.count_nonzero(outside))
        return values

    return init


# Distributions whose width follows from the fans.


@initializer()
def uniform_fan_in(fan_in: int) -> Fill:
    """U(−1/√fan_in, 1/√fan_in): PyTorch's default for convolutions, dense layers and their biases."""
    bound = 1 / math.sqrt(integer("uniform_fan_in", "fan_in", fan_in, 1))
    return uniform(-bound, bound)


@initializer(axes=2)
def torch_default() -> Fill:
    """PyTorch's default for weights of convolutions and dense layers: `uniform_fan_in` of the shape's fan_in."""
    return lambda generator, shape: uniform_fan_in(fans(shape)[0])(generator, shape)


@initializer(axes=2)
def he_normal(mode: str = "fan_in", gain: float = math.sqrt(2), truncated: bool = False) -> Fill:
    """N(0, gain²/fan) (He et al. 2015, PyTorch's kaiming_normal); truncated at 2 standard deviations: Keras's."""
    return _by_fan("he_normal", _mode("he_normal", mode), gain, "truncated" if truncated else "normal")


@initializer(axes=2)
def he_uniform(mode: str = "fan_in", gain: float = math.sqrt(2)) -> Fill:
    """U(−b, b) of variance gain²/fan (He et al. 2015, PyTorch's kaiming_uniform)."""
    return _by_fan("he_uniform", _mode("he_uniform", mode), gain, "uniform")


@initializer(axes=2)
def glorot_normal(gain: float = 1.0, truncated: bool = False) -> Fill:
    """N(0, 2·gain²/(fan_in + fan_out)) (Glorot & Bengio 2010, PyTorch's xavier_normal); truncated: Keras's."""
    return _by_fan("glorot_normal", "fan_avg", gain, "truncated" if truncated else "normal")


@initializer(axes=2)
def glorot_uniform(gain: float = 1.0) -> Fill:
    """U(−b, b) of variance 2·gain²/(fan_in + fan_out) (Glorot & Bengio 2010): Keras's default for weights."""
    return _by_fan("glorot_uniform", "fan_avg", gain, "uniform")


def _by_fan(owner: str, mode: str, gain: float, kind: str) -> Fill:
    gain = _above(owner, "gain", gain)

    def init(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
        fan_in, fan_out = fans(shape)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[mode]
        std = gain / math.sqrt(fan)
        if kind == "uniform":
            return generator.uniform(-math.sqrt(3) * std, math.sqrt(3) * std, shape)
        if kind == "normal":
            return generator.normal(0.0, std, shape)
        wide = std / TWO_SIGMA  # so that what is left has the standard deviation std
        return truncated_normal(0.0, wide, -2 * wide, 2 * wide)(generator, shape)

    return init


# Matrices.


@initializer(axes=2)
def orthogonal(gain: float = 1.0) -> Fill:
    """gain times a random matrix (all inputs, outputs) with orthonormal columns, or rows if they are fewer.

    From a QR decomposition with its signs fixed (Saxe et al. 2014; Mezzadri 2007), made in double by NumPy's LAPACK:
    another one may round some value the other way.
    """
    gain = _above("orthogonal", "gain", gain)

    def init(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
        inputs, outputs = math.prod(shape[:-1]), shape[-1]
        q, r = np.linalg.qr(generator.normal(size=(max(inputs, outputs), min(inputs, outputs))))
        q *= gain * np.sign(np.diagonal(r))
        return (q if inputs >= outputs else q.T).reshape(shape)

    return init


@initializer(axes=3)
def dirac(groups: int = 1) -> Fill:
    """1 in the middle of the filter from each input channel to the output of its number, else 0: a convolution of so
    many groups that hands its input on (with padding="same" and stride 1), as PyTorch's dirac. Raises ShapeError where
    groups do not divide the outputs."""
    groups = integer("dirac", "groups", groups, 1)

    def init(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
        if shape[-1] % groups:
            raise ShapeError(f"dirac(groups={groups})", expected=f"a multiple of {groups} outputs", got=f"{shape[-1]}")
        values, outputs = np.zeros(shape), shape[-1] // groups  # of a group
        channels = np.arange(min(shape[-2], outputs))
        middle: tuple[Any, ...] = tuple(size // 2 for size in shape[:-2])
        for group in range(groups):
            values[middle][channels, group * outputs + channels] = 1
        return values

    return init


# By name.

INITIALIZERS: dict[str, Initializer] = {
    "torch_default": torch_default(),
    "keras_default": glorot_uniform(),
    "he_normal": he_normal(),
    "he_normal_truncated": he_normal(truncated=True),
    "he_uniform": he_uniform(),
    "glorot_normal": glorot_normal(),
    "glorot_normal_truncated": glorot_normal(truncated=True),
    "glorot_uniform": glorot_uniform(),
    "orthogonal": orthogonal(),
    "dirac": dirac(),
    "zeros": zeros(),
    "ones": ones(),
    "normal": normal(),
    "uniform": uniform(),
    "truncated_normal": truncated_normal(),
    "random_normal": normal(0.0, 0.05),  # Keras's defaults
    "random_uniform": uniform(-0.05, 0.05),
}
INITIALIZERS |= {  # PyTorch's other names
    "kaiming_normal": INITIALIZERS["he_normal"],
    "kaiming_uniform": INITIALIZERS["he_uniform"],
    "xavier_normal": INITIALIZERS["glorot_normal"],
    "xavier_uniform": INITIALIZERS["glorot_uniform"],
}


def get_initializer(value: str | Initializer, what: str = "initializer") -> Initializer:
    """The initializer of that name, with its default arguments; an Initializer as it is.

    Raises ConfigError, about `what`, for anything else: it lists the names, and says which is the closest.
    """
    if isinstance(value, Initializer):
        return value
    if isinstance(value, str) and value in INITIALIZERS:
        return INITIALIZERS[value]
    expected = "an initializer of corenet.nn.init, or one of " + ", ".join(map(repr, INITIALIZERS))
    close = difflib.get_close_matches(value, INITIALIZERS, 1) if isinstance(value, str) else []
    fix = f"Did you mean {close[0]!r}?" if close else None
    if callable(value):
        fix = "Nets go to workers and into model files as plain data, where a function cannot go"
    raise ConfigError(what, expected=expected, got=repr(value), fix=fix)
