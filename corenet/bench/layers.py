"""The layers of the suite: every convolution and dense layer of its nets, each shape once, and some more."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from .. import models
from ..engine import make_plan
from ..engine.plan import Step
from ..errors import ConfigError
from ..nn import Conv2d, Layer, Linear

NETS = ("lenet5", "mnist_example", "keras_mnist", "cifar10_quick", "vgg_small", "resnet20")
MORE: tuple[tuple[Conv2d | Linear, tuple[int, ...]], ...] = (
    (Conv2d(16, 32, 3, 2, padding=1), (32, 32, 16)),
    (Conv2d(32, 64, 5, padding=2), (16, 16, 32)),
    (Conv2d(32, 32, 3, padding=1, groups=32), (28, 28, 32)),
    (Conv2d(256, 256, 3, padding=1), (14, 14, 256)),
    (Conv2d(384, 384, 3, padding=1), (13, 13, 384)),
    (Conv2d(192, 64, 1), (28, 28, 192)),
    (Linear(1024, 1024), (1024,)),
)
# One of each algorithm, quickly: a narrow first layer, Winograd's, 5×5, dense.
QUICK = ("conv 28×28 1→32 3×3", "conv 26×26 32→64 3×3", "conv 15×15 32→32 5×5 p2", "dense 1600→10")


@dataclass(frozen=True)
class Case:
    """A layer for samples of a shape, and the nets that have it."""

    name: str
    layer: Conv2d | Linear
    input_shape: tuple[int, ...]
    nets: list[str] = field(default_factory=list)

    def description(self) -> dict[str, Any]:
        """What a peer needs to make the same layer."""
        shape = list(self.input_shape)
        if isinstance(self.layer, Linear):
            sizes = {"in": self.layer.in_features, "out": self.layer.out_features}
            return {"kind": "dense", "input_shape": shape, "bias": self.layer.bias, **sizes}
        sizes = {"in": self.layer.in_channels, "out": self.layer.out_channels, "groups": self.layer.groups}
        names = "kernel_size", "stride", "padding", "dilation"
        geometry = {name: list(getattr(self.layer, name)) for name in names}
        return {"kind": "conv", "input_shape": shape, "bias": self.layer.bias, **sizes, **geometry}


def all_cases() -> list[Case]:
    """Every layer of the suite."""
    found: dict[str, Case] = {}
    for net in NETS:
        for layer, shape in _layers_of(models.get(net), models.INPUT_SHAPES[net]):
            case = found.setdefault(name := name_of(layer, shape), Case(name, layer, shape))
            if net not in case.nets:
                case.nets.append(net)
    for layer, shape in MORE:
        found.setdefault(name := name_of(layer, shape), Case(name, layer, shape))
    return list(found.values())


def choose(cases: list[Case], only: list[str]) -> list[Case]:
    """Those of the nets named, or whose own name has the text. Raises ConfigError where there is none."""
    if not only:
        return cases
    for text in only:
        if not any(text in case.nets or text in case.name for case in cases):
            expected = f"one of {', '.join(NETS)}, or a part of a layer's name, such as {cases[0].name!r}"
            raise ConfigError("--only", expected=expected, got=repr(text))
    return [case for case in cases if any(text in case.nets or text in case.name for text in only)]


def name_of(layer: Conv2d | Linear, shape: tuple[int, ...]) -> str:
    """Such as "conv 32×32 16→32 3×3 s2 p1"; a bias makes no difference."""
    if isinstance(layer, Linear):
        return f"dense {layer.in_features}→{layer.out_features}"
    depthwise = 1 < layer.groups == layer.in_channels == layer.out_channels
    channels = f"{layer.in_channels}" if depthwise else f"{layer.in_channels}→{layer.out_channels}"
    parts = ["depthwise" if depthwise else "conv", "{}×{}".format(*shape[:2]), channels]
    parts.append("{}×{}".format(*layer.kernel_size))
    for letter, given, default in (("s", layer.stride, 1), ("p", layer.padding, 0), ("d", layer.dilation, 1)):
        numbers = (given,) if isinstance(given, str) else given[:1] if given[0] == given[1] else given
        if numbers != (default,):
            parts.append(letter + "×".join(map(str, numbers)))
    if layer.groups > 1 and not depthwise:
        parts.append(f"g{layer.groups}")
    return " ".join(parts)


def _layers_of(net: Layer, input_shape: tuple[int, ...]) -> list[tuple[Conv2d | Linear, tuple[int, ...]]]:
    """The convolutions and dense layers of a net, each with the shape of what it is given."""
    plan = make_plan(net, input_shape, 1)
    found = []
    for place in plan.layers:
        if place.type in ("Conv2d", "Linear"):
            step = next(step for step in plan.forward if isinstance(step, Step) and step.layer is place)
            given = step.args[0]  # the image, maybe with a depth of 1 before its height, or the vector
            shape = given.shape[1:] if place.type == "Linear" else given.shape[-3:]
            layer: Any = reduce(_inside, place.path.split("."), net)
            found.append((layer, tuple(shape)))
    return found


def _inside(layer: Any, key: str) -> Any:
    """The layer inside another that is called so in its path, such as "4" or "body"."""
    return layer.layers[int(key)] if key.isdigit() else getattr(layer, key)
