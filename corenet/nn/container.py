"""Layers made of layers."""

from ..engine import Planner, Tensor
from ..errors import ConfigError
from ..kernels import elementwise
from .layer import Layer


def _check_layers(owner: str, layers: tuple) -> None:
    for index, layer in enumerate(layers):
        if not isinstance(layer, Layer):
            several, kind = isinstance(layer, tuple | list), isinstance(layer, type) and issubclass(layer, Layer)
            fix = "Write Sequential(*layers)" if several else f"Call it: {layer.__name__}(…)" if kind else None
            raise ConfigError(f"{owner}, part {index}", expected="a layer", got=repr(layer), fix=fix)


class Sequential(Layer):
    """Layers one after the other; parameters are named by place: "0.weight"."""

    def __init__(self, *layers: Layer):
        _check_layers("Sequential", layers)
        self.layers = layers

    def arguments(self):
        return {"layers": self.layers}

    def __repr__(self) -> str:
        return "Sequential(\n" + "".join(f"  {i}: {layer!r}\n" for i, layer in enumerate(self.layers)) + ")"

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
        # x is read twice, so its gradient is the sum of two.
        to_body, to_shortcut = x, x
        if x.grad is not None:
            to_body, to_shortcut = (Tensor(x.data, p.buffer((p.chunk, *x.shape)), x.shape) for _ in range(2))
            p.backward(elementwise.add, p.flat(to_body.grad), p.flat(to_shortcut.grad), p.flat(x.grad))
        a = p.child("body", self.body, to_body)
        b = to_shortcut if self.shortcut is None else p.child("shortcut", self.shortcut, to_shortcut)
        if a.shape != b.shape:
            p.fail(
                expected=f"body and shortcut of one shape; the body gives {a.shape}",
                got=f"{b.shape} from the shortcut",
                fix="Give a shortcut with the same stride and channels, such as a 1×1 Conv2d",
            )
        y = p.activation(a.shape)
        p.forward(elementwise.add, p.flat(a.data), p.flat(b.data), p.flat(y.data))
        p.share_gradient(a, y)  # the derivative of a sum is 1: both branches read y's gradient where it lies
        p.share_gradient(b, y)
        return y
