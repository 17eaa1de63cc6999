"""What a plan has to keep to, so that a layer that forgets something is told, instead of training on wrong gradients.

A step's arguments do not say which of them it writes. What can be known: a layer that did not make a gradient, but
names it in a backward step, is the one that writes it. So of each gradient there has to be one such layer at most,
and exactly one where the gradient is needed. What a layer does with what it made itself is its own affair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import LayerError
from .buffer import Buffer
from .plan import Meet, Parameter, Place, Step, Tensor

Tensors = list[tuple[Place | None, Tensor]]  # each with the layer that made it, or reads it


def check_outputs(outputs: Tensors, forward: Iterable[Step | Meet]) -> None:
    """Each output is named in a forward step of the layer that made it. Raises LayerError."""
    written = set(_named(forward))
    for place, tensor in outputs:
        if place is not None and (place, tensor.data.root) not in written:
            expected = "a forward step that writes its output"
            raise LayerError(str(place), expected=expected, got="none", fix="p.forward(function, x.data, y.data)")


def check_gradients(made: Tensors, read: Tensors, backward: Iterable[Step | Meet], loss: Iterable[Step | Meet]) -> None:
    """Each gradient is written by one layer at most; those of tensors that are read, by one. Raises LayerError."""
    makers = {(place, tensor.grad.root) for place, tensor in made if tensor.grad is not None}
    gradients = {root for _, root in makers}
    writers: dict[Buffer, Place | None] = {}
    for place, root in (*_named(loss), *_named(backward)):
        if root in gradients and (place, root) not in makers:
            other = writers.setdefault(root, place)
            if other is not place:
                expected = "one layer that writes the gradient of a tensor"
                fix = "A tensor that is read twice has two gradients, to be added: a, b = p.fan_out(x, 2)"
                raise LayerError(f"{place}", expected=expected, got=f"another, {other or 'the loss'}", fix=fix)
    for place, tensor in reversed(read):  # the innermost layer first
        if tensor.grad is not None and tensor.grad.root in gradients - writers.keys():
            expected = "a backward step that writes the gradient of its input, or of each part of its fan_out"
            fix = "p.backward(function, …, y.grad, x.grad)"
            raise LayerError(str(place), expected=expected, got="none", fix=fix)


def check_parameters(made: dict[str, tuple[Place, Parameter]], backward: Iterable[Step | Meet]) -> None:
    """The gradient of each parameter is named in a backward step. Raises LayerError."""
    written = {root for _, root in _named(backward)}
    for name, (place, parameter) in made.items():
        grad = parameter.grad
        if grad is not None and grad.nbytes and grad.root not in written:
            expected = f"a backward step that writes the gradient of parameter {name!r}"
            raise LayerError(str(place), expected=expected, got="none", fix="p.backward(function, …, w.grad)")


def _named(steps: Iterable[Step | Meet]) -> Iterator[tuple[Place | None, Buffer]]:
    """Each layer with the memory that its steps name."""
    for step in steps:
        if isinstance(step, Step):
            for buffer in step.buffers():
                yield step.layer, buffer.root
