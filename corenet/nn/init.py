"""Initial values of parameters, from a generator keyed by (seed, parameter): the same net and seed, the same values.

An initializer is a function of a NumPy generator and a shape. Weights are (…, in, out): (R, S, C, K) of a convolution,
(in, out) of a dense layer; the axes before are the receptive field, whose size multiplies both fans:

    fan_in = R·S·C        fan_out = R·S·K        of a dense layer in and out

Where PyTorch and Keras give one name to two things, the name here means PyTorch's.
"""

import math
from typing import Any

import numpy as np

from ..errors import ConfigError, ShapeError
from .layer import Initializer, number

MODES = ("fan_in", "fan_out")
TWO_SIGMA = 0.87962566103423978  # the standard deviation of a normal distribution that is cut off at 2
LEAST_MASS = 1e-3  # of a truncated normal: what is drawn outside is drawn again


def _finite(owner: str, name: str, value: Any) -> float:
    return number(owner, name, value, "a finite number", math.isfinite)


def _above(owner: str, name: str, value: Any) -> float:
    return number(owner, name, value, "a finite number above 0", lambda v: math.isfinite(v) and v > 0)


def _interval(owner: str, low: Any, high: Any) -> tuple[float, float]:
    low = _finite(owner, "low", low)
    expected = f"a finite number above low={low!r}"
    return low, number(owner, "high", high, expected, lambda value: math.isfinite(value) and value > low)


def _mode(owner: str, mode: Any) -> str:
    if mode not in MODES:
        raise ConfigError(f"{owner}(mode=…)", expected=" or ".join(map(repr, MODES)), got=repr(mode))
    return mode


def fans(owner: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight; ShapeError for arrays that are none."""
    if len(shape) < 2:
        fix = "Give biases zeros() or uniform_fan_in(fan_in of the layer)"
        raise ShapeError(owner, expected="a weight of shape (…, in, out)", got=f"shape {shape}", fix=fix)
    field = math.prod(shape[:-2])
    return field * shape[-2], field * shape[-1]


def gain(nonlinearity: str, slope: float = 0.01) -> float:
    """What keeps the variance through an activation, PyTorch's calculate_gain; slope: of "leaky_relu"."""
    leaky = math.sqrt(2 / (1 + slope**2))
    gains = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "leaky_relu": leaky, "selu": 3 / 4}
    if nonlinearity not in gains:
        expected = "one of " + ", ".join(map(repr, gains))
        raise ConfigError("gain(nonlinearity=…)", expected=expected, got=repr(nonlinearity))
    return gains[nonlinearity]


# Constants and plain distributions.


def constant(value: float) -> Initializer:
    """All elements equal."""
    value = _finite("constant", "value", value)
    return lambda generator, shape: np.full(shape, value)


def zeros() -> Initializer:
    """All 0: Keras's default for biases."""
    return constant(0.0)


def ones() -> Initializer:
    """All 1."""
    return constant(1.0)


def normal(mean: float = 0.0, std: float = 1.0) -> Initializer:
    """N(mean, std²)."""
    mean, std = _finite("normal", "mean", mean), _above("normal", "std", std)
    return lambda generator, shape: generator.normal(mean, std, shape)


def uniform(low: float = 0.0, high: float = 1.0) -> Initializer:
    """U(low, high)."""
    low, high = _interval("uniform", low, high)
    return lambda generator, shape: generator.uniform(low, high, shape)


def truncated_normal(mean: float = 0.0, std: float = 1.0, low: float = -2.0, high: float = 2.0) -> Initializer:
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


def uniform_fan_in(fan_in: int) -> Initializer:
    """U(−1/√fan_in, 1/√fan_in): PyTorch's default for convolutions, dense layers and their biases."""
    bound = 1 / math.sqrt(fan_in)
    return uniform(-bound, bound)


def torch_default() -> Initializer:
    """PyTorch's default for weights of convolutions and dense layers: `uniform_fan_in` of the shape's fan_in."""
    return lambda generator, shape: uniform_fan_in(fans("torch_default", shape)[0])(generator, shape)


def he_normal(mode: str = "fan_in", gain: float = math.sqrt(2), truncated: bool = False) -> Initializer:
    """N(0, gain²/fan) (He et al. 2015, PyTorch's kaiming_normal); truncated at 2 standard deviations: Keras's."""
    return _by_fan("he_normal", _mode("he_normal", mode), gain, "truncated" if truncated else "normal")


def he_uniform(mode: str = "fan_in", gain: float = math.sqrt(2)) -> Initializer:
    """U(−b, b) of variance gain²/fan (He et al. 2015, PyTorch's kaiming_uniform)."""
    return _by_fan("he_uniform", _mode("he_uniform", mode), gain, "uniform")


def glorot_normal(gain: float = 1.0, truncated: bool = False) -> Initializer:
    """N(0, 2·gain²/(fan_in + fan_out)) (Glorot & Bengio 2010, PyTorch's xavier_normal); truncated: Keras's."""
    return _by_fan("glorot_normal", "fan_avg", gain, "truncated" if truncated else "normal")


def glorot_uniform(gain: float = 1.0) -> Initializer:
    """U(−b, b) of variance 2·gain²/(fan_in + fan_out) (Glorot & Bengio 2010): Keras's default for weights."""
    return _by_fan("glorot_uniform", "fan_avg", gain, "uniform")


def _by_fan(owner: str, mode: str, gain: float, kind: str) -> Initializer:
    gain = _above(owner, "gain", gain)

    def init(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
        fan_in, fan_out = fans(owner, shape)
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


def orthogonal(gain: float = 1.0) -> Initializer:
    """gain times a random matrix (all inputs, outputs) with orthonormal columns, or rows if they are fewer.

    From a QR decomposition with its signs fixed (Saxe et al. 2014; Mezzadri 2007), made in double by NumPy's LAPACK:
    another one may round some value the other way.
    """
    gain = _above("orthogonal", "gain", gain)

    def init(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
        fans("orthogonal", shape)
        inputs, outputs = math.prod(shape[:-1]), shape[-1]
        q, r = np.linalg.qr(generator.normal(size=(max(inputs, outputs), min(inputs, outputs))))
        q *= gain * np.sign(np.diagonal(r))
        return (q if inputs >= outputs else q.T).reshape(shape)

    return init


def dirac() -> Initializer:
    """1 in the middle of the filter from each input channel to the output of its number, else 0: a convolution that
    hands its input on (with padding="same" and stride 1), as PyTorch's dirac."""

    def init(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
        if len(shape) < 3:
            raise ShapeError("dirac", expected="a filter of shape (…, in, out)", got=f"shape {shape}")
        values, channels = np.zeros(shape), np.arange(min(shape[-2:]))
        middle: tuple[Any, ...] = tuple(size // 2 for size in shape[:-2])
        values[middle][channels, channels] = 1
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


def get_initializer(initializer: str | Initializer) -> Initializer:
    """The initializer of that name, with its default arguments; a function as it is. ConfigError lists the names."""
    if callable(initializer):
        return initializer
    if not isinstance(initializer, str) or initializer not in INITIALIZERS:
        expected = "a function of (generator, shape), or one of " + ", ".join(map(repr, INITIALIZERS))
        raise ConfigError("initializer", expected=expected, got=repr(initializer))
    return INITIALIZERS[initializer]


def defaults(convention: str, fan_in: int) -> tuple[Initializer, Initializer]:
    """For weight and bias of a layer with that fan_in: those of "torch" or of "keras"."""
    if convention not in ("torch", "keras"):
        raise ConfigError("defaults(convention=…)", expected="'torch' or 'keras'", got=repr(convention))
    return (uniform_fan_in(fan_in), uniform_fan_in(fan_in)) if convention == "torch" else (glorot_uniform(), zeros())
