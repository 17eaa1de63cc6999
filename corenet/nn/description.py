"""A net as plain data and back: what travels to the workers and into the model file, without pickle."""

import inspect
from collections.abc import Mapping
from typing import Any

from ..engine import Plan
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


def name_of(kind: type[Layer]) -> str:
    """What a layer's type is called in a description: a user's own is module:name."""
    own = LAYERS.get(kind.__name__) is not kind
    return f"{kind.__module__}:{kind.__qualname__}" if own else kind.__name__


def describe(layer: Layer, plan: Plan | None = None) -> dict[str, Any]:
    """A layer as a JSON-able dict: its type's name, and the constructor's arguments.

    An initializer in them is a dict, too: {"init": "orthogonal", "gain": 2.0}. With a plan of the net, arguments that
    leave a choice are what they became in it.
    """
    kind = type(layer)
    # A layer with weights is in one place only, so there is one decision.
    decided = next((arguments for owner, arguments in plan.decisions if owner is layer), {}) if plan else {}

    def plain(key: str, value: Any) -> Any:
        if isinstance(value, Layer):
            return describe(value, plan)
        if isinstance(value, Initializer):
            return {"init": value.name, **dict(value.arguments)}
        if isinstance(value, tuple | list):
            return [plain(key, part) for part in value]
        if not isinstance(value, str | bool | int | float | None):
            expected = "numbers, text, layers, or lists of them: what a model file can hold"
            raise ConfigError(f"{kind.__name__}({key}=…)", expected=expected, got=repr(value))
        return value

    arguments = {key: decided.get(key, value) for key, value in layer.arguments().items()}
    return {"type": name_of(kind), **{key: plain(key, value) for key, value in arguments.items()}}


def user_layers(layer: Layer) -> list[type[Layer]]:
    """The classes of a net that are not corenet's, each once."""
    found: dict[type[Layer], None] = {}

    def look(value: Any) -> None:
        if isinstance(value, tuple | list):
            for part in value:
                look(part)
        elif isinstance(value, Layer):
            if ":" in name_of(type(value)):
                found[type(value)] = None
            look(list(value.arguments().values()))

    look(layer)
    return list(found)


def own_names(description: Any) -> list[str]:
    """The names, module:name, of the layers in a description that are not corenet's, each once."""
    parts = description if isinstance(description, list) else []
    found = []
    if isinstance(description, dict):
        name, parts = description.get("type"), list(description.values())
        found = [name] if isinstance(name, str) and ":" in name else []
    return list(dict.fromkeys((*found, *(name for part in parts for name in own_names(part)))))


def check_arguments(net: Layer) -> None:
    """Raise ConfigError where a user's own layer does not keep its arguments: another, made of them, would differ."""
    own = {name_of(kind): kind for kind in user_layers(net)}
    if own:
        _compare(describe(net), describe(build(describe(net), own)))


def _compare(given: Any, kept: Any, owner: str = "", argument: str = "") -> None:
    """Find what differs; owner, argument: of the innermost layer of the user's own that it is in."""
    alike = type(given) is type(kept) and isinstance(given, dict | list) and len(given) == len(kept)
    if alike and isinstance(given, list):
        for one, other in zip(given, kept, strict=True):
            _compare(one, other, owner, argument)
    elif alike and given.get("type") == kept.get("type"):
        own = str(given.get("type")).partition(":")[2]
        for key, value in given.items():
            _compare(value, kept.get(key), own or owner, key if own else argument)
    elif given != kept:
        expected = "the argument as it was given, to make the layer again in a worker"
        got = f"{str(kept)[:80]} made of {str(given)[:80]}"
        fix = f"In __init__: self.{argument} = {argument}; what is made of it goes by another name, or into plan"
        raise ConfigError(f"layer {owner}, attribute {argument!r}", expected=expected, got=got, fix=fix)


def build(description: dict[str, Any], own: Mapping[str, type[Layer]] | None = None) -> Layer:
    """The layer that `describe` described; own: a user's layers by `name_of`. Raises ConfigError for anything else."""

    def value_of(value: Any) -> Any:
        if isinstance(value, list):
            return [value_of(part) for part in value]
        if not isinstance(value, dict):
            return value
        return _build_initializer(value) if "init" in value else build(value, own)

    name = description.get("type") if isinstance(description, dict) else None
    layer = LAYERS.get(str(name)) or (own or {}).get(str(name))
    if layer is None:
        got = repr(description if name is None else name)[:80]
        raise ConfigError("net description", expected="a layer of " + ", ".join(LAYERS), got=got)
    arguments = {key: value for key, value in description.items() if key != "type"}
    what = f"net description, {name}"
    try:
        values = {key: value_of(value) for key, value in arguments.items()}
        several = inspect.getfullargspec(layer).varargs  # such as Sequential's *layers
        return layer(*values.pop(several), **values) if several else layer(**values)
    except KeyError as error:
        raise ConfigError(what, expected=f"an entry {error}", got="none") from error
    except TypeError as error:
        raise ConfigError(what, got=str(error)) from error


def _build_initializer(description: dict[str, Any]) -> Initializer:
    name = description["init"]
    if name not in MAKERS:
        raise ConfigError("net description, init", expected="one of " + ", ".join(MAKERS), got=repr(name)[:80])
    return MAKERS[name](**{key: value for key, value in description.items() if key != "init"})
