"""Layers made of layers."""

import math

from ..engine import Planner, Tensor
from ..errors import ConfigError
from ..kernels import channels, elementwise
from .layer import Layer


def _check_layers(owner: str, layers: tuple) -> None:
    for index, layer in enumerate(layers):
        if not isinstance(layer, Layer):
            several, kind = isinstance(layer, tuple | list), isinstance(layer, type) and issubclass(layer, Layer)
            kept = "Concat" if owner == "Concat" and len(layers) == 1 else "Sequential"
            fix = f"Write {kept}(*layers)" if several else f"Call it: {layer.__name__}(…)" if kind else None
            raise ConfigError(f"{owner}, part {index}", expected="a layer", got=repr(layer), fix=fix)


class Identity(Layer):
    """Hands its input on: the branch of a Concat that changes nothing."""

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        return x


class Sequential(Layer):
    """Layers one after the other; parameters are named by place: "0.weight"."""

    def __init__(self, *layers: Layer):
        _check_layers("Sequential", layers)
        self.layers = layers

    def __repr__(self) -> str:
        lines = (f"  {i}: {layer!r}\n" for i, layer in enumerate(self.layers))
        return f"{type(self).__name__}(\n{''.join(lines)})"

    def __iter__(self):
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.layers):
            x = p.child(str(index), layer, x)
        return x


class Residual(Layer):
    """body(x) + shortcut(x) (He et al. 2016); without a shortcut, body(x) + x."""

    def __init__(self, body: Layer, shortcut: Layer | None = None):
        _check_layers("Residual", (body,) if shortcut is None else (body, shortcut))
        self.body, self.shortcut = body, shortcut

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        to_body, to_shortcut = p.fan_out(x, 2)
        a = p.child("body", self.body, to_body)
        b = to_shortcut if self.shortcut is None else p.child("shortcut", self.shortcut, to_shortcut)
        if a.shape != b.shape:
            p.fail(
                expected=f"body and shortcut of one shape; the body gives {a.shape}",
                got=f"{b.shape} from the {'input' if self.shortcut is None else 'shortcut'}",
                fix="Give a shortcut with the same stride and channels, such as a 1×1 Conv2d",
            )
        y = p.activation(a.shape)
        p.forward(elementwise.add, p.flat(a.data), p.flat(b.data), p.flat(y.data))
        p.share_gradient(a, y)  # the derivative of a sum is 1: both branches read y's gradient where it lies
        p.share_gradient(b, y)
        return y


class Concat(Layer):
    """All branches of the same input, their outputs (…, channels) joined along the channels.

    Inception modules (Szegedy et al. 2015) and the skips of a U-Net. Parameters are named by branch: "0.weight".
    """

    def __init__(self, *branches: Layer):
        _check_layers("Concat", branches)
        if not branches:
            raise ConfigError("Concat(branches=…)", expected="at least one branch", got="none")
        self.branches = branches

    def __repr__(self) -> str:
        return f"Concat({', '.join(map(repr, self.branches))})"

    def plan(self, p: Planner, x: Tensor) -> Tensor:
        inputs = p.fan_out(x, len(self.branches))
        outputs = [p.child(str(i), branch, inputs[i]) for i, branch in enumerate(self.branches)]
        leading = outputs[0].shape[:-1]
        for index, output in enumerate(outputs):
            if output.shape[:-1] != leading:
                p.fail(
                    expected=f"branches that differ in channels only; branch 0 gives {outputs[0].shape}",
                    got=f"{output.shape} from branch {index}",
                    fix="Give all branches the same strides, and padding that keeps the size",
                )
        rows = p.chunk, math.prod(leading)
        y = p.activation((*leading, sum(output.shape[-1] for output in outputs)))
        whole, first = (*rows, y.shape[-1]), 0
        for output in outputs:
            part = (*rows, output.shape[-1])
            p.forward(channels.put, p.view(output.data, part), p.view(y.data, whole), first)
            if output.grad is not None:
                p.backward(channels.take, p.view(y.grad, whole), p.view(output.grad, part), first)
            first += output.shape[-1]
        return y
