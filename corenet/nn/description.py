"""A net as plain data and back: what travels to the workers and into the model file, without pickle."""

import inspect
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from .activation import Dropout, Flatten, ReLU
from .container import Concat, Identity, Residual, Sequential
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose2d
from .dropout2d import Dropout2d
from .global_max import GlobalMaxPool2d
from .group_norm import GroupNorm, LayerNorm
from .initializer import MAKERS, Initializer
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
        AdaptiveAvgPool2d, GlobalAvgPool2d, GlobalMaxPool2d, Upsample, ZeroPad2d, Reshape, Concat, Identity,
    )
}  # fmt: skip
SEVERAL = {layer: inspect.getfullargspec(layer).varargs for layer in LAYERS.values()}  # such as Sequential's *layers


def describe(layer: Layer) -> dict[str, Any]:
    """A layer as a JSON-able dict: its type's name (module:name, of a user's own), and the constructor's arguments.

    An initializer in them is a dict, too: {"init": "orthogonal", "gain": 2.0}.
    """
    kind = type(layer)
    own = LAYERS.get(kind.__name__) is not kind
    name = f"{kind.__module__}:{kind.__qualname__}" if own else kind.__name__

    def plain(key: str, value: Any) -> Any:
        if isinstance(value, Layer):
            return describe(value)
        if isinstance(value, Initializer):
            return {"init": value.name, **dict(value.arguments)}
        if isinstance(value, tuple | list):
            return [plain(key, part) for part in value]
        if not isinstance(value, str | bool | int | float | None):
            expected = "numbers, text, layers, or lists of them: what a model file can hold"
            raise ConfigError(f"{kind.__name__}({key}=…)", expected=expected, got=repr(value))
        return value

    return {"type": name, **{key: plain(key, value) for key, value in layer.arguments().items()}}


def user_layers(layer: Layer) -> list[type[Layer]]:
    """The classes of a net that are not corenet's, each once."""
    found: dict[type[Layer], None] = {}

    def look(value: Any) -> None:
        if isinstance(value, tuple | list):
            for part in value:
                look(part)
        elif isinstance(value, Layer):
            if LAYERS.get(type(value).__name__) is not type(value):
                found[type(value)] = None
            look(list(value.arguments().values()))

    look(layer)
    return list(found)


def build(description: dict[str, Any], own: Mapping[str, type[Layer]] | None = None) -> Layer:
    """The layer that `describe` described; own: a user's layers by name. Raises ConfigError for anything else."""

    def value_of(value: Any) -> Any:
        if isinstance(value, list):
            return [value_of(part) for part in value]
        if not isinstance(value, dict):
            return value
        return _build_initializer(value) if "init" in value else build(value, own)

    name = description.get("type") if isinstance(description, dict) else None
    layer = LAYERS.get(str(name)) or (own or {}).get(str(name).partition(":")[2])
    if layer is None:
        fix = f"It is not corenet's: load(path, layers=[{name.partition(':')[2]}])" if name and ":" in name else None
        got = repr(description if name is None else name)[:80]
        raise ConfigError("net description", expected="a layer of " + ", ".join(LAYERS), got=got, fix=fix)
    arguments = {key: value for key, value in description.items() if key != "type"}
    what = f"net description, {name}"
    try:
        if several := SEVERAL.get(layer):
            return layer(*map(value_of, arguments[several]))
        return layer(**{key: value_of(value) for key, value in arguments.items()})
    except KeyError as error:
        raise ConfigError(what, expected=f"an entry {error}", got="none") from error
    except TypeError as error:
        raise ConfigError(what, got=str(error)) from error


def _build_initializer(description: dict[str, Any]) -> Initializer:
    name = description["init"]
    if name not in MAKERS:
        raise ConfigError("net description, init", expected="one of " + ", ".join(MAKERS), got=repr(name)[:80])
    return MAKERS[name](**{key: value for key, value in description.items() if key != "init"})
