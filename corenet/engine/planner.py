"""From a net and shapes to a plan: the steps of one chunk, the buffers they use, and where these lie.

Layers call the planner's methods in the order of the forward pass; backward steps are kept in reverse. Nothing is
allocated and nothing runs: a plan is the same on every worker, because it depends on the net and the sizes only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from ..errors import LayerError, ShapeError
from ..kernels import clock, elementwise, linear, losses
from ..kernels.operation import Operation
from .buffer import Buffer, aligned, place_by_lifetime
from .fusion import RULES, RULES_OF_FLOAT32, replace_runs
from .layout import Layout
from .plan import Meet, Merge, Parameter, Place, Plan, Plannable, Product, Statistic, Step, Tensor
from .precision import batch_products_in_bf16, products_in_bf16
from .rules import Tensors, check_gradients, check_outputs, check_parameters


class Planner:
    """What layers are given: they ask for parameters and buffers, and append steps."""

    def __init__(self, chunk: int, batch: int, training: bool, dtype: str):
        self.chunk, self.batch, self.training = chunk, batch, training
        self.dtype = np.dtype(dtype)
        self.layer_number = 0
        self._layers: list[Place] = []
        self._decisions: list[tuple[Plannable, dict[str, Any]]] = []
        self._open: list[Place] = []  # the layer that is being planned, after those it is inside of
        self._planned: set[int] = set()  # identities of layers that have been planned
        self._names: set[str] = set()  # of parameters, statistics and layers, which are unique
        self._outputs: Tensors = []
        self._inputs: Tensors = []  # of layers that do not just hand them on
        self._parts: Tensors = []  # of fan-outs
        self._parameters: dict[str, tuple[Place, Parameter]] = {}
        self._forward: list[Step | Meet] = []
        self._backward: list[Step | Meet] = []
        self._common: list[Buffer] = []
        self.products: list[Product] = []
        self.merges: list[Merge] = []
        self.state: list[tuple[str, tuple[int, ...], str]] = []
        self.state_buffers: dict[str, list[Buffer]] = {}
        self.initializers: dict[str, Callable] = {}
        self.statistics: dict[str, float] = {}
        self.samples = Buffer((chunk,), "int64", "io")
        self.clock = Buffer((clock.SIZE,), "int64", "io")
        self.metrics = Buffer((losses.METRICS,), "float64", "io")
        self.scale = Buffer((1,), "float64", "io")  # what the gradient of the loss is multiplied with
        self.targets = Buffer((chunk, 0), "int64", "io")

    # What layers ask for.

    def parameter(self, name: str, shape: tuple[int, ...], init: Callable, *, per_batch: bool = False) -> Parameter:
        """A trained array named under the layer; per_batch: its gradient comes from a `product`, not from chunks."""
        full = self._new_name(name)
        if not callable(init):
            expected = "a function init(generator, shape), such as nn.init.he_normal()"
            self._refuse(f"parameter {name!r}", expected=expected, got=repr(init))
        self.initializers[full] = init
        data = self._in_state(full, shape, "product" if per_batch else "row", "state")
        grad = None if per_batch else self._in_state(full, shape, None, "row")
        parameter = Parameter(data, grad)
        self._parameters[full] = self._open[-1], parameter
        return parameter

    def statistic(self, name: str, shape: tuple[int, ...], value: float) -> Statistic:
        """A running array that starts as `value` everywhere, and the place for what a chunk measures."""
        full = self._new_name(name)
        self.statistics[full] = value
        running = self._in_state(full, shape, "statistic", "state")
        return Statistic(running, self._in_state(full, shape, None, "row"))

    def activation(self, shape: tuple[int, ...]) -> Tensor:
        """A new activation (and its gradient, in training)."""
        full = (self.chunk, *self._shape(shape))
        tensor = Tensor(self.buffer(full), self.buffer(full) if self.training else None, full[1:])
        self._outputs.append((self._layer, tensor))
        return tensor

    def fan_out(self, x: Tensor, readers: int) -> list[Tensor]:
        """x once for each of its readers, whose gradients add up to that of x."""
        if x.grad is None or readers == 1:
            return [x] * readers
        first, rest = (Tensor(x.data, self.buffer((self.chunk, *x.shape)), x.shape) for _ in range(2))
        sum_of = self.flat(first.grad), self.flat(rest.grad)
        adder = replace(self._open[-1])  # the layer once more: what it does with its parts is another's affair
        self._backward.append(Step(elementwise.add, (*sum_of, self.flat(x.grad)), adder))
        self._parts += [(adder, first), (adder, rest)]
        return [first, *self.fan_out(rest, readers - 1)]

    def buffer(self, shape: tuple[int, ...], dtype: str = "float") -> Buffer:
        """Memory that lives from the first to the last step that names it."""
        buffer = Buffer(self._shape(shape), self._dtype(dtype), "arena")
        if self._open:
            self._open[-1].buffers.append(buffer)
        return buffer

    def target(self, elements: int, dtype: str = "float") -> Buffer:
        """Where the loss finds the chunk's labels or values (chunk, elements)."""
        self.targets = Buffer((self.chunk, elements), self._dtype(dtype), "io")
        return self.targets

    def _dtype(self, dtype: str) -> str:
        return self.dtype.str if dtype == "float" else dtype

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The same activation with samples of another shape."""
        full = (self.chunk, *shape)
        return Tensor(x.data.reshape(full), None if x.grad is None else x.grad.reshape(full), shape)

    def view(self, buffer: Buffer, shape: tuple[int, ...]) -> Buffer:
        """The same memory in another shape."""
        return buffer.reshape(shape)

    def flat(self, buffer: Buffer) -> Buffer:
        """The same memory as (chunk, features)."""
        return buffer.reshape((self.chunk, buffer.nbytes // buffer.dtype.itemsize // self.chunk))

    def share_gradient(self, a: Tensor, b: Tensor) -> None:
        """Let the gradient of a be the very memory of b's, where both have one."""
        if a.grad is not None and b.grad is not None:
            a.grad.share(b.grad)

    def forward(self, operation: Operation | Callable, *args: Any) -> None:
        """Append a forward step."""
        self._forward.append(self._step("forward", operation, args))

    def backward(self, operation: Operation | Callable, *args: Any) -> None:
        """Add a backward step: they run in reverse order of being added; ignored in prediction."""
        if self.training:
            self._backward.append(self._step("backward", operation, args))

    @property
    def chunks(self) -> int:
        """Chunks of a full batch."""
        return -(-self.batch // self.chunk)

    def common(self, shape: tuple[int, ...]) -> Buffer:
        """Memory that all chunks of a worker share: for the results of a `meet`."""
        buffer = Buffer(shape, self.dtype.str, "common")
        self._common.append(buffer)
        return buffer

    def meet_forward(self, operation: Operation, columns: tuple, results: tuple, *args: Any) -> None:
        """Let all chunks of the batch come this far; then make `results` from these columns of their rows."""
        self._forward.append(Meet(operation, columns, results, args))

    def meet_backward(self, operation: Operation, columns: tuple, results: tuple, *args: Any) -> None:
        """The same among backward steps, which run in reverse order of being added."""
        self._backward.append(Meet(operation, columns, results, args))

    def product(self, operation: Operation, x: Buffer, dy: Buffer, weight: Parameter) -> None:
        """Make a weight's gradient once per batch from batch-wide panels of x and dy (chunk, width)."""
        if not self.training:
            return
        panels = [Buffer((self.batch, source.shape[1]), self.dtype.str, "panels") for source in (x, dy)]
        for source, panel in zip((x, dy), panels, strict=True):
            self.backward(linear.store_rows, source, panel, self.clock)
        name = next(name for name, buffers in self.state_buffers.items() if weight.data in buffers)
        self.products.append(Product(operation, panels[0], panels[1], name))

    def after_batch(self, operation: Operation, statistics: tuple[Statistic, ...], *args: Any) -> None:
        """Merge what the chunks of a batch measured into running statistics."""
        names = [n for s in statistics for n, buffers in self.state_buffers.items() if s.running in buffers]
        self.merges.append(Merge(operation, tuple(names), args))

    def multiply_adds(self, count: int, x: Tensor) -> None:
        """Note how many a sample takes forward; the gradient of the weights takes as many, that of x, if there is one,
        as many again."""
        layer = self._open[-1]
        layer.flops += 2 * count
        layer.training_flops += 2 * count * (2 if x.grad is None else 3)

    def decide(self, layer: Plannable, **arguments: Any) -> None:
        """Note what arguments of a layer that leave a choice, such as "auto", have become: a model file keeps that."""
        self._decisions.append((layer, arguments))

    def child(self, name: str, layer: Plannable, x: Tensor) -> Tensor:
        """Plan a layer inside this one."""
        self.layer_number += 1
        return self.plan(self._new_name(name), layer, x)

    def plan(self, path: str, layer: Plannable, x: Tensor) -> Tensor:
        """Plan a layer that has this path in the net."""
        place = Place(path, type(layer).__name__)
        self._layers.append(place)
        self._open.append(place)
        parameters = len(self.state)
        y = layer.plan(self, x)
        if not isinstance(y, Tensor):
            self._refuse("plan", expected="the output to be returned, a tensor", got=repr(y), fix="return y")
        if x.grad is not None and (y.grad is None or y.grad.root is not x.grad.root):
            self._inputs.append((place, x))
        if len(self.state) > parameters and id(layer) in self._planned:
            fix = "Weights cannot be shared; make a layer of its own for each place"
            self.fail(expected="a layer with weights in one place", got="the same object in two", fix=fix)
        self._planned.add(id(layer))
        self._open.pop()
        place.shape = y.shape
        return y

    def fail(self, *, expected: str, got: str, fix: str) -> NoReturn:
        """Raise ShapeError for the layer that is being planned; outside of all layers, for the output of the net."""
        raise ShapeError(str(self._layer or "output of the net"), expected=expected, got=got, fix=fix)

    # Finishing.

    @property
    def _layer(self) -> Place | None:
        return self._open[-1] if self._open else None

    def _refuse(self, what: str, *, expected: str, got: str, fix: str | None = None) -> NoReturn:
        """Raise LayerError for what the layer that is being planned asks."""
        raise LayerError(f"{self._layer or 'loss'}, {what}", expected=expected, got=got, fix=fix)

    def _new_name(self, name: str) -> str:
        full = f"{self._open[-1].path}.{name}" if self._open[-1].path else name
        if full in self._names:
            expected = "parameters and layers of different names"
            self._refuse(f"name {name!r}", expected=expected, got="the same name again")
        self._names.add(full)
        return full

    def _shape(self, shape: Any) -> tuple[int, ...]:
        if not isinstance(shape, tuple | list) or not all(isinstance(n, int | np.integer) and n >= 0 for n in shape):
            self._refuse("shape", expected="a tuple of sizes, such as (3, 8)", got=repr(shape))
        return tuple(map(int, shape))

    def _step(self, phase: str, operation: Operation | Callable, args: tuple) -> Step:
        for arg in args:
            if isinstance(arg, Tensor | Parameter | Statistic):
                fix = "Give its .data, or its .grad"
                self._refuse(phase, expected="arrays and plain values", got=f"a {type(arg).__name__}", fix=fix)
        return Step(operation, args, self._layer)

    def _in_state(self, name: str, shape: tuple[int, ...], part: str | None, space: str) -> Buffer:
        shape = self._shape(shape)
        if part is not None:
            self.state.append((name, shape, part))
        buffer = Buffer(shape, self.dtype.str, space)
        self.state_buffers.setdefault(name, []).append(buffer)
        return buffer

    def finish(self, x: Tensor, y: Tensor, fuse: bool, precision: str) -> Plan:
        """Lay everything out. Raises LayerError for a layer that has left something out."""
        self._check()
        layout = Layout.of(self.state, self.dtype)
        for entry in layout.entries:
            for buffer in self.state_buffers[entry.name]:
                buffer.offset = entry.offset * self.dtype.itemsize
        io = self._stack([x.data, self.targets, self.samples, self.clock, self.scale, self.metrics])
        panels = self._stack([panel for product in self.products for panel in (product.x, product.dy)])
        forward, backward = self._forward, self._backward[::-1]
        if fuse:
            forward, backward = replace_runs(forward, backward, y.data, RULES)
        products = self.products
        if precision == "bf16" and self.dtype == np.float32:
            forward, backward = products_in_bf16(forward), products_in_bf16(backward)
            products = batch_products_in_bf16(products)
        if fuse:
            forward, backward = replace_runs(forward, backward, y.data, RULES_OF_FLOAT32)
        lifetimes: dict[Buffer, tuple[int, int]] = {}
        for time, step in enumerate((*forward, *backward)):
            for root in (b.root for b in step.buffers()) if isinstance(step, Step) else ():
                if root.space == "arena":
                    lifetimes[root] = (lifetimes.get(root, (time, time))[0], time)
        if not self.training and y.data.root.space == "arena":  # the output outlives the last step
            lifetimes[y.data.root] = (lifetimes.get(y.data.root, (0, 0))[0], len(forward))
        arena = place_by_lifetime(lifetimes)
        item = self.dtype.itemsize
        sizes = {
            "arena": arena,
            "io": io,
            "panels": panels,
            "row": layout.stat_end * item,
            "common": self._stack(self._common),
            "state": layout.size * item,
            "gradient": layout.size * item,
        }
        return Plan(
            input_shape=x.shape,
            output_shape=y.shape,
            layers=tuple(self._layers),
            decisions=tuple(self._decisions),
            chunk=self.chunk,
            batch=self.batch,
            training=self.training,
            forward=tuple(forward),
            backward=tuple(backward),
            products=tuple(products),
            merges=tuple(self.merges),
            layout=layout,
            initializers=self.initializers,
            statistics=self.statistics,
            images=x.data,
            targets=self.targets,
            samples=self.samples,
            clock=self.clock,
            scale=self.scale,
            metrics=self.metrics,
            output=y.data,
            bytes=sizes,
        )

    def _check(self) -> None:
        check_outputs(self._outputs, self._forward)
        if self.training:
            loss = [step for step in self._forward if isinstance(step, Step) and step.layer is None]
            made, read = self._outputs + self._parts, self._parts + self._inputs
            check_gradients(made, read, self._backward, loss)
            check_parameters(self._parameters, self._backward)

    @staticmethod
    def _stack(buffers: list[Buffer]) -> int:
        position = 0
        for buffer in buffers:
            buffer.offset = position
            position += aligned(buffer.nbytes)
        return position


def make_plan(
    net: Plannable,
    input_shape: tuple[int, ...],
    chunk: int,
    batch: int | None = None,
    *,
    loss: Any = None,
    dtype: str = "float32",
    fuse: bool = True,
    precision: str = "float32",
) -> Plan:
    """Plan a net for samples of input_shape, chunk at a time; with a loss for training, without for prediction.

    fuse: let faster steps take the place of some runs of steps (`fusion.py`).
    precision: "bf16": products of matrices take operands of bfloat16 (`precision.py`), in plans of float32.
    Raises ShapeError naming the layer that does not fit.
    """
    builder = Planner(chunk, batch or chunk, loss is not None, dtype)
    x = Tensor(Buffer((chunk, *input_shape), builder.dtype.str, "io"), None, tuple(input_shape))
    y = builder.plan("", net, x)
    if loss is not None:
        loss.plan(builder, y)
    return builder.finish(x, y, fuse, precision)
