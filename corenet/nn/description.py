"""A net as plain data and back: what travels to the workers and into the model file, without pickle."""

from typing import Any

from ..errors import ConfigError
from .activation import Dropout, Flatten, ReLU
from .container import Residual, Sequential
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose2d
from .dropout2d import Dropout2d
from .global_max import GlobalMaxPool2d
from .group_norm import GroupNorm, LayerNorm
from .layer import Layer
from .linear import Linear
from .nonlinearity import ELU, GELU, LeakyReLU, Sigmoid, SiLU, Softmax, Tanh
from .norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from .pool import AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d
from .reshape import Reshape
from .resize import AdaptiveAvgPool2d, GlobalAvgPool2d, Upsample, ZeroPad2d
from .response_norm import LocalResponseNorm

LAYERS: dict[str, type[Layer]] = {
    layer.__name__: layer
    for layer in (
        Conv2d, Linear, ReLU, MaxPool2d, AvgPool2d, Flatten, Dropout, BatchNorm2d, Sequential, Residual,
        Conv1d, Conv3d, ConvTranspose2d, MaxPool1d, MaxPool3d, AvgPool1d, AvgPool3d, BatchNorm1d, BatchNorm3d,
        LeakyReLU, ELU, GELU, SiLU, Tanh, Sigmoid, Softmax,
        GroupNorm, LayerNorm, LocalResponseNorm, Dropout2d,
        AdaptiveAvgPool2d, GlobalAvgPool2d, GlobalMaxPool2d, Upsample, ZeroPad2d, Reshape,
    )
}  # fmt: skip


def describe(layer: Layer) -> dict[str, Any]:
    """A layer as a JSON-able dict: its type's name, and the constructor's arguments."""

    def plain(value: Any) -> Any:
        if isinstance(value, Layer):
            return describe(value)
        return [plain(part) for part in value] if isinstance(value, tuple | list) else value

    name = type(layer).__name__
    if LAYERS.get(name) is not type(layer):
        raise ConfigError("net", expected="layers of corenet.nn", got=repr(type(layer)))
    return {"type": name, **{key: plain(value) for key, value in layer.arguments().items()}}


def build(description: dict[str, Any]) -> Layer:
    """The layer that `describe` described. Raises ConfigError for anything else."""

    def value_of(value: Any) -> Any:
        return build(value) if isinstance(value, dict) else value

    if not isinstance(description, dict) or description.get("type") not in LAYERS:
        raise ConfigError("net description", expected="a layer of " + ", ".join(LAYERS), got=repr(description)[:80])
    arguments = {key: value for key, value in description.items() if key != "type"}
    layer, what = LAYERS[description["type"]], f"net description, {description['type']}"
    try:
        if layer is Sequential:
            return Sequential(*map(value_of, arguments["layers"]))
        if layer is Reshape:
            return Reshape(*arguments["shape"])
        return layer(**{key: value_of(value) for key, value in arguments.items()})
    except KeyError as error:
        raise ConfigError(what, expected=f"an entry {error}", got="none") from error
    except TypeError as error:
        raise ConfigError(what, got=str(error)) from error
