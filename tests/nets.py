"""Small nets that contain every layer, and one chunk of a plan in memory where nothing has been written by accident."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from guarded import Fence
from nets_layers import more_nets

from corenet.engine import Call, Plan, Program, aligned_bytes, initial_state, make_plan, private_spaces
from corenet.engine.buffer import Buffer
from corenet.kernels import clock
from corenet.kernels.backend import Backend, select
from corenet.nn import (
    AvgPool2d,
    BatchNorm2d,
    Conv2d,
    CrossEntropy,
    Dropout,
    Flatten,
    Layer,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
)

SHAPE = (5, 4, 2)
CLASSES = 3


def ended(*layers: Layer) -> Sequential:
    """The layers, then a dense layer with one logit per class."""
    (features,) = make_plan(Sequential(*layers, Flatten()), SHAPE, 1).output_shape
    return Sequential(*layers, Flatten(), Linear(features, CLASSES))


def within(*layers: Layer) -> Sequential:
    """The layers between others with parameters: 3 channels come in, gradients have to come through."""
    return ended(Conv2d(2, 3, (2, 1)), *layers)


def same(channels: int = 3) -> Conv2d:
    """A convolution that keeps the shape."""
    return Conv2d(channels, channels, 3, padding=1)


# By layer: nets in which a mistake in that layer shows. A layer without an entry fails the suite.
CASES: dict[str, dict[str, Layer]] = {
    "Conv2d": {
        "3x3": within(Conv2d(3, 4, 3)),
        "wide padding, stride 2": within(Conv2d(3, 2, (3, 2), stride=2, padding=(1, 2))),
        "stride over kernel": within(Conv2d(3, 2, (1, 2), stride=(2, 3))),
        "without bias": within(Conv2d(3, 4, 2, bias=False)),
        "padded first layer": ended(Conv2d(2, 17, (4, 3), stride=(3, 1), padding=1)),
    },
    "Linear": {
        "three": within(Flatten(), Linear(48, 5), Linear(5, 17)),
        "without bias": within(Flatten(), Linear(48, 4, bias=False)),
        "first layer": Sequential(Flatten(), Linear(40, CLASSES)),
    },
    "ReLU": {
        "between": within(ReLU()),
        "after a dense layer": within(Flatten(), Linear(48, 6), ReLU()),
        "first layer": ended(ReLU()),
    },
    "MaxPool2d": {
        "2x2": within(MaxPool2d(2)),
        "overlapping, padded": within(MaxPool2d(3, 2, padding=1)),
        "stride over window": within(MaxPool2d((1, 2), (3, 3))),
        "first layer": ended(MaxPool2d(2)),
    },
    "AvgPool2d": {
        "2x2": within(AvgPool2d(2)),
        "overlapping, padded": within(AvgPool2d((2, 4), (2, 1), padding=(0, 2))),
        "stride over window": within(AvgPool2d((1, 2), (3, 3))),
        "first layer": ended(AvgPool2d(2, 1)),
    },
    "Flatten": {
        "before a dense layer": within(),
        "twice": within(Flatten(), Flatten()),
        "inside a residual": within(Residual(Sequential(same(), Flatten()), Flatten())),
    },
    "Dropout": {
        "of an image": within(Dropout(0.4)),
        "of a vector, twice": within(Flatten(), Dropout(0.3), Linear(48, 9), Dropout(0.7)),
        "nothing dropped": within(Dropout(0)),
        "first layer": ended(Dropout(0.5)),
    },
    "BatchNorm2d": {
        "between": within(BatchNorm2d(3, eps=1e-2)),
        "twice": within(BatchNorm2d(3, momentum=0.5), Conv2d(3, 2, 2, bias=False), BatchNorm2d(2), ReLU()),
        "first layer": ended(BatchNorm2d(2)),
    },
    "Sequential": {
        "nested": within(Sequential(Sequential(same(), ReLU()), Sequential())),
        "empty": within(Sequential()),
    },
    "Residual": {
        "without shortcut": within(Residual(Sequential(same(), ReLU(), same()))),
        "with shortcut": within(Residual(Conv2d(3, 4, 3, 2, padding=1), Conv2d(3, 4, 1, 2, bias=False)), ReLU()),
        "nested": within(Residual(Sequential(Residual(same()), ReLU(), Residual(same(), same())))),
        "empty body": within(Residual(Sequential())),
        "empty body, shortcut": within(Residual(Sequential(), same())),
        "of a residual": within(Residual(Residual(ReLU()), Residual(same()))),
        "dropout": within(Residual(Sequential(same(), Dropout(0.5)), Dropout(0.2))),
        "first layer": ended(Residual(same(2))),
        "last layer": Sequential(Flatten(), Linear(40, CLASSES), Residual(Linear(CLASSES, CLASSES))),
        "one after the other": within(Residual(BatchNorm2d(3)), ReLU(), Residual(same()), Residual(ReLU())),
    },
}
CASES |= more_nets(within, ended)
ALL = {f"{layer}, {label}": net for layer, cases in CASES.items() for label, net in cases.items()}


class Chunk:
    """A plan's calls in memory of its own, which is NaN before each chunk wherever nothing has been put.

    With `apart`, no two buffers share memory and each has guard words, so that a wrong lifetime, or a write outside a
    buffer, gives other results than the planned arena.
    """

    def __init__(self, plan: Plan, backend: Backend | None = None, state: np.ndarray | None = None, apart=False):
        self.plan = plan
        self.state = aligned_bytes(plan.layout.size * plan.layout.dtype.itemsize).view(plan.layout.dtype)
        self.state[:] = initial_state(plan, 0) if state is None else state
        self.panels = aligned_bytes(plan.bytes["panels"])
        self.fence = Fence()
        if apart:
            memory: dict[Buffer, np.ndarray] = {}

            def array(buffer: Buffer) -> np.ndarray:
                root = buffer.root
                if root.space in ("state", "panels", "row"):
                    return buffer.array(self.spaces)
                if root not in memory:
                    memory[root] = self.fence.empty(root.shape, root.dtype)
                return memory[root].view(buffer.dtype).reshape(buffer.shape)

        else:

            def array(buffer: Buffer) -> np.ndarray:
                return buffer.array(self.spaces)

        self.spaces = {**private_spaces(plan), "panels": self.panels, "state": self.state.view(np.uint8)}
        self.row = self.spaces["row"].view(plan.layout.dtype)
        bound: Any = Apart(plan, array) if apart else Program(plan, self.spaces)
        self.program = bound
        for call in bound.calls():
            call.link(backend or select("numpy"))

    def run(self, images, labels, samples=None, *, first=0, count=None, step=0, seed=0) -> float:
        """Forward (and backward, in training) of these samples, whose first is number `first` of `count` of a batch;
        the sum of their losses."""  # fmt: skip
        n, program = len(images), self.program
        self.spaces["arena"][:] = 0xFF
        self.row[:] = np.nan
        program.images[:] = np.nan
        program.images[:n] = images
        program.labels[:] = 10**9
        program.labels[:n] = labels
        program.samples[:n] = np.arange(first, first + n) if samples is None else samples
        time = program.clock
        time[clock.SEED], time[clock.STEP] = seed, step
        time[clock.FIRST], time[clock.COUNT] = first, n if count is None else count
        program.forward(n)
        if self.plan.training:
            program.backward(n)
        self.fence.check()
        return float(program.metrics[0])

    @property
    def output(self) -> np.ndarray:
        return self.program.output

    def measured(self) -> dict[str, np.ndarray]:
        """The chunk's gradients and statistics, from its row."""
        layout = self.plan.layout
        return {e.name: layout.get(self.row, e).copy() for e in layout.entries if e.size and e.part != "product"}

    def products(self, samples: int) -> dict[str, np.ndarray]:
        """The gradients of dense weights, of all the samples in the panels."""
        entries = {e.name: e for e in self.plan.layout.entries}
        found = {}
        for product in self.plan.products:
            shape, dtype = entries[product.name].shape, self.plan.layout.dtype
            panels = (b.array({"panels": self.panels}) for b in (product.x, product.dy))
            found[product.name] = np.full(shape, np.nan, dtype)
            product.operation(samples, *panels, found[product.name], 0, shape[0])
        return found


class Apart:
    """The calls of a plan, each buffer in memory of its own: what `Program` has to be equal to."""

    def __init__(self, plan: Plan, array: Callable[[Buffer], np.ndarray]):
        def bind(step):
            return Call(step.operation, *(array(a) if isinstance(a, Buffer) else a for a in step.args))

        self.forward_calls, self.backward_calls = ([bind(s) for s in part] for part in (plan.forward, plan.backward))
        self.images, self.labels, self.samples, self.clock, self.metrics = (
            array(b) for b in (plan.images, plan.labels, plan.samples, plan.clock, plan.metrics)
        )
        self.output = array(plan.output)

    def calls(self) -> Iterable[Call]:
        return (*self.forward_calls, *self.backward_calls)

    def forward(self, n: int) -> None:
        for call in self.forward_calls:
            call(n)

    def backward(self, n: int) -> None:
        for call in self.backward_calls:
            call(n)


def some_batch(n: int, shape=SHAPE, classes=CLASSES, seed=1) -> tuple[np.ndarray, np.ndarray]:
    """n random images and labels."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, *shape)), rng.integers(0, classes, n)


def gradients(
    net: Layer, images, labels, shares: Iterable[int], *, chunk=None, dtype="float64", backend=None, state=None, step=0
) -> tuple[float, dict[str, np.ndarray]]:
    """Mean loss of a batch and all its gradients, from chunks with these shares of the samples."""
    shares = [share for share in shares if share]
    assert sum(shares) == len(images)
    plan = make_plan(net, images.shape[1:], chunk or max(shares), len(images), loss=CrossEntropy(), dtype=dtype)
    one = Chunk(plan, backend, state)
    loss, total, first = 0.0, {}, 0
    for share in shares:
        part = slice(first, first + share)
        loss += one.run(images[part], labels[part], first=first, count=len(images), step=step)
        for name, value in one.measured().items():
            total[name] = total.get(name, 0) + value
        first += share
    statistics = {e.name for e in plan.layout.entries if e.part == "statistic"}
    total = {name: value for name, value in total.items() if name not in statistics}
    return loss / len(images), total | one.products(len(images))


class Tap(Layer):
    """Hands its input on, and keeps the gradient that comes back: makes dx of a layer visible."""

    def __init__(self):
        self.gradient: np.ndarray | None = None

    def plan(self, p, x):
        y = p.activation(x.shape)

        def keep(n, dy):
            self.gradient = dy[:n].copy()

        def hand_on(n, source, target):
            target[:n] = source[:n]

        p.forward(hand_on, x.data, y.data)
        p.backward(keep, y.grad)
        return y


class Given(CrossEntropy):
    """Not a loss: keeps the net's output, and starts backward from a given gradient (n, …) of it."""

    def __init__(self, dy: np.ndarray):
        self.dy = dy
        self.output: np.ndarray | None = None

    def plan(self, p, x, labels, metrics):
        def turn(n, y, dx):
            self.output = y[:n].copy()
            dx[:n] = self.dy[:n].reshape(dx[:n].shape)

        p.forward(turn, x.data, x.grad)


def output_size(net: Layer, shape: tuple[int, ...]) -> tuple[int, ...]:
    return make_plan(net, shape, 1).output_shape


def count(shape: tuple[int, ...]) -> int:
    return math.prod(shape)
