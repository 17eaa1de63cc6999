"""Small nets that contain every layer, and one chunk of a plan in memory where nothing has been written by accident."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from guarded import Fence
from nets_layers import more_nets

from corenet.engine import Call, Plan, Program, aligned_bytes, initial_state, make_plan, private_spaces
from corenet.engine.buffer import Buffer
from corenet.engine.plan import Meet
from corenet.kernels import clock
from corenet.kernels.backend import Backend, select
from corenet.nn import (
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Concat,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose2d,
    CrossEntropy,
    Dropout,
    Flatten,
    Identity,
    Layer,
    Linear,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    ReLU,
    Residual,
    Sequential,
)
from corenet.nn.loss import Loss

SHAPE = (5, 4, 2)
SEQUENCE = (9, 2)
VOLUME = (4, 5, 3, 2)
CLASSES = 3


def ended(*layers: Layer, shape: tuple[int, ...] = SHAPE) -> Sequential:
    """The layers, then a dense layer with one logit per class."""
    (features,) = make_plan(Sequential(*layers, Flatten()), shape, 1).output_shape
    return Sequential(*layers, Flatten(), Linear(features, CLASSES))


def within(*layers: Layer) -> Sequential:
    """The layers between others with parameters: 3 channels come in, gradients have to come through."""
    return ended(Conv2d(2, 3, (2, 1)), *layers)


def along(*layers: Layer) -> Sequential:
    """The layers on sequences, after a convolution from 2 to 4 channels."""
    return ended(Conv1d(2, 4, 2), *layers, shape=SEQUENCE)


def inside(*layers: Layer) -> Sequential:
    """The layers in volumes, after a convolution from 2 to 4 channels."""
    return ended(Conv3d(2, 4, (2, 1, 1)), *layers, shape=VOLUME)


def same(channels: int = 3) -> Conv2d:
    """A convolution that keeps the shape."""
    return Conv2d(channels, channels, 3, padding=1)


# By layer: nets in which a mistake in that layer shows. A layer without an entry fails the suite.
CASES: dict[str, dict[str, Layer]] = {
    "Conv1d": {
        "stride, dilation": along(Conv1d(4, 3, 3, 2, padding=2, dilation=2)),
        "groups, same": along(Conv1d(4, 6, 4, padding="same", groups=2), ReLU()),
        "first layer, one filter per channel": ended(Conv1d(2, 2, 3, groups=2), shape=SEQUENCE),
    },
    "Conv3d": {
        "stride, padding": inside(Conv3d(4, 3, (2, 3, 2), (1, 2, 1), padding=(1, 0, 1))),
        "one filter per channel, dilation": inside(Conv3d(4, 4, 2, dilation=(2, 1, 2), groups=4, padding=1)),
        "first layer": ended(Conv3d(2, 3, 2), shape=VOLUME),
    },
    "ConvTranspose2d": {
        "stride": within(ConvTranspose2d(3, 2, 2, 2)),
        "output padding, dilation": within(ConvTranspose2d(3, 4, 3, 2, 1, output_padding=1, dilation=(1, 2))),
        "groups": within(Conv2d(3, 4, 1), ConvTranspose2d(4, 6, (2, 3), (1, 3), groups=2)),
        "one filter per channel": within(ConvTranspose2d(3, 3, 3, 2, padding=1, groups=3, bias=False), ReLU()),
        "first layer": ended(ConvTranspose2d(2, 3, 3, padding=(0, 2))),
    },
    "Conv2d": {
        "3x3": within(Conv2d(3, 4, 3)),
        "wide padding, stride 2": within(Conv2d(3, 2, (3, 2), stride=2, padding=(1, 2))),
        "stride over kernel": within(Conv2d(3, 2, (1, 2), stride=(2, 3))),
        "without bias": within(Conv2d(3, 4, 2, bias=False)),
        "dilation, groups": within(Conv2d(3, 6, (2, 3), padding=(1, 2), dilation=(2, 3), groups=3)),
        "one filter per channel": within(Conv2d(3, 3, 3, 2, padding=1, groups=3), ReLU()),
        "same, even kernel": within(Conv2d(3, 2, (2, 4), padding="same", dilation=(3, 1))),
        "padded first layer": ended(Conv2d(2, 17, (4, 3), stride=(3, 1), padding=1)),
        "winograd4": within(Conv2d(3, 4, 3, padding=1, algorithm="winograd4")),
        "winograd4, 5x5": within(Conv2d(3, 4, 5, padding=(2, 3), algorithm="winograd4")),
        "winograd4, valid": ended(Conv2d(2, 3, 1), Conv2d(3, 4, 3, algorithm="winograd4")),
        "winograd4, 5x5, valid": ended(Conv2d(2, 3, 1), Conv2d(3, 4, 5, padding=(0, 3), algorithm="winograd4")),
        "winograd2": within(Conv2d(3, 4, 3, padding=(0, 1), algorithm="winograd2")),
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
    "MaxPool1d": {
        "ceil": along(MaxPool1d(3, 2, padding=1, ceil_mode=True)),
        "overlapping": along(MaxPool1d(2, 1)),
    },
    "MaxPool3d": {
        "2x2x2": inside(MaxPool3d((2, 2, 2))),
        "ceil, padded": inside(MaxPool3d((2, 3, 2), (1, 2, 2), padding=(0, 1, 1), ceil_mode=True)),
    },
    "MaxPool2d": {
        "ceil": within(MaxPool2d(2, 3, ceil_mode=True)),
        "2x2": within(MaxPool2d(2)),
        "overlapping, padded": within(MaxPool2d(3, 2, padding=1)),
        "stride over window": within(MaxPool2d((1, 2), (3, 3))),
        "first layer": ended(MaxPool2d(2)),
    },
    "AvgPool1d": {
        "ceil": along(AvgPool1d(3, 2, padding=1, ceil_mode=True)),
        "without padding in the count": along(AvgPool1d(4, 3, 2, count_include_pad=False)),
    },
    "AvgPool3d": {
        "2x2x2": inside(AvgPool3d(2)),
        "ceil, padded": inside(AvgPool3d((2, 3, 2), (1, 2, 2), (0, 1, 1), ceil_mode=True, count_include_pad=False)),
    },
    "AvgPool2d": {
        "ceil": within(AvgPool2d(2, 3, ceil_mode=True)),
        "without padding in the count": within(AvgPool2d(3, 2, 1, count_include_pad=False)),
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
    "BatchNorm1d": {
        "of vectors": within(Flatten(), Linear(48, 5), BatchNorm1d(5), ReLU()),
        "of sequences": along(BatchNorm1d(4, eps=1e-2), ReLU()),
        "sync, of vectors": within(Flatten(), Linear(48, 5), BatchNorm1d(5, sync=True), ReLU()),
        "sync, of sequences": along(BatchNorm1d(4, eps=1e-2, sync=True), ReLU()),
    },
    "BatchNorm3d": {
        "between": inside(BatchNorm3d(4), ReLU()),
        "sync": inside(BatchNorm3d(4, sync=True), ReLU()),
    },
    "BatchNorm2d": {
        "between": within(BatchNorm2d(3, eps=1e-2)),
        "twice": within(BatchNorm2d(3, momentum=0.5), Conv2d(3, 2, 2, bias=False), BatchNorm2d(2), ReLU()),
        "first layer": ended(BatchNorm2d(2)),
        "sync": within(BatchNorm2d(3, eps=1e-2, sync=True)),
        "sync, first layer": ended(BatchNorm2d(2, sync=True)),
        "sync, several": within(
            BatchNorm2d(3, momentum=0.5, sync=True),
            Residual(Sequential(same(), BatchNorm2d(3, sync=True), ReLU()), BatchNorm2d(3, sync=True)),
            Conv2d(3, 2, 2, bias=False),
            BatchNorm2d(2),
        ),
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
    "Concat": {
        "two": within(Concat(Conv2d(3, 2, 1), same()), Conv2d(5, 2, 2)),
        "an inception module": within(
            Concat(Conv2d(3, 2, 1), Sequential(Conv2d(3, 1, 1), ReLU(), same(1)), MaxPool2d(3, 1, 1), same()), same(9)
        ),
        "the skip of a u-net": within(
            Concat(Identity(), Sequential(MaxPool2d(2), same(), ConvTranspose2d(3, 4, 2, 2))), Conv2d(7, 2, 3)
        ),
        "one branch": within(Concat(same()), ReLU()),
        "nested": within(Concat(Concat(Identity(), same()), ReLU(), Concat(same())), Conv2d(12, 2, 1)),
        "in a residual": within(Residual(Concat(Conv2d(3, 1, 1), Conv2d(3, 2, 1)))),
        "of residuals": within(Concat(Residual(same()), Residual(ReLU()), Dropout(0.4)), same(9)),
        "of vectors": within(Flatten(), Linear(48, 5), Concat(Linear(5, 3), ReLU(), Linear(5, 1))),
        "of sequences": along(Concat(Conv1d(4, 2, 3, padding=1), Identity()), Conv1d(6, 2, 2)),
        "in volumes": inside(Concat(Conv3d(4, 1, 1), BatchNorm3d(4), Identity()), Conv3d(9, 2, 2)),
        "first layer": ended(Concat(same(2), Identity(), Conv2d(2, 1, 1), same(2)), same(7)),
        "last layer": Sequential(Flatten(), Concat(Linear(40, 1), Linear(40, CLASSES - 1))),
    },
    "Identity": {
        "between": within(Identity()),
        "as both branches": within(Concat(Identity(), Identity()), Conv2d(6, 2, 2)),
        "as body": within(Residual(Identity(), Identity())),
        "first layer": ended(Identity()),
    },
}
CASES |= more_nets(within, ended)
ALL = {f"{layer}, {label}": net for layer, cases in CASES.items() for label, net in cases.items()}


def shape_of(label: str) -> tuple[int, ...]:
    """The samples that the net of that label takes."""
    first = ALL[label]
    while isinstance(first, Sequential):
        first = first.layers[0]
    return SEQUENCE if isinstance(first, Conv1d) else VOLUME if isinstance(first, Conv3d) else SHAPE


def batch_for(label: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """n random samples and labels for the net of that label."""
    return some_batch(n, shape_of(label))


class Chunk:
    """A plan's calls in memory of its own, which is NaN before each chunk wherever nothing has been put.

    With `apart`, no two buffers share memory and each has guard words, so that a wrong lifetime, or a write outside a
    buffer, gives other results than the planned arena.
    """

    def __init__(
        self, plan: Plan, backend: Backend | None = None, state: np.ndarray | None = None, apart=False,
        beside: Chunk | None = None,
    ):  # fmt: skip
        """beside: another chunk of the same batch, whose panels this one fills, too."""
        self.plan, self.backend = plan, backend or select("numpy")
        self.state = aligned_bytes(plan.layout.size * plan.layout.dtype.itemsize).view(plan.layout.dtype)
        self.state[:] = initial_state(plan, 0) if state is None else state
        self.panels = beside.panels if beside else aligned_bytes(plan.bytes["panels"])
        self.common = aligned_bytes(plan.bytes["common"])
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

        self.spaces = {
            **private_spaces(plan), "panels": self.panels, "common": self.common, "state": self.state.view(np.uint8)
        }  # fmt: skip
        self.row, self.array = self.spaces["row"].view(plan.layout.dtype), array
        bound: Any = Apart(plan, array) if apart else Program(plan, self.spaces)
        self.program = bound
        for call in bound.calls():
            call.link(self.backend)

    def run(self, images, labels, samples=None, *, first=0, count: float | None = None, step=0, seed=0) -> float:
        """Forward (and backward, in training) of these samples, whose first is number `first` of a batch that
        counts `count`; the sum of their losses."""  # fmt: skip
        self.load(images, labels, samples, first=first, count=count, step=step, seed=seed)
        run_together([self])
        return float(self.program.metrics[0])

    def load(self, images, labels, samples=None, *, first=0, count: float | None = None, step=0, seed=0) -> None:
        """Put in the samples to be run, and NaN into all other memory."""
        n, program = len(images), self.program
        self.n = n
        self.spaces["arena"][:] = self.common[:] = 0xFF
        self.row[:] = np.nan
        program.images[:] = np.nan
        program.images[:n] = images
        program.targets[:] = 10**9
        if program.targets.size:  # some losses take none
            program.targets[:n] = np.asarray(labels).reshape(n, -1)
        program.samples[:n] = np.arange(first, first + n) if samples is None else samples
        time = program.clock
        time[clock.SEED], time[clock.STEP] = seed, step
        time[clock.FIRST], program.scale[0] = first, 1 / (n if count is None else count)

    def meet(self, place: int, chunks: list[Chunk]) -> None:
        """Make for itself what all chunks of the batch, which have come to that place, make of all their rows."""
        meet = self.plan.meets[place]
        columns = [np.stack([column.array(chunk.spaces) for chunk in chunks]) for column in meet.columns]
        counts = np.array([chunk.n for chunk in chunks])
        args = len(chunks), *columns, counts, *map(self.array, meet.results), *meet.args
        self.backend.function(meet.operation, args)(*args)

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


def run_together(chunks: list[Chunk]) -> None:
    """Bring the loaded chunks of a batch, in their order, from one place where all meet to the next."""
    for part in range(len(chunks[0].plan.meets) + 1):
        for chunk in chunks:
            if part:
                chunk.meet(part - 1, chunks)
            chunk.program.run(part, chunk.n)
    for chunk in chunks:
        chunk.fence.check()


class Apart:
    """The calls of a plan, each buffer in memory of its own: what `Program` has to be equal to."""

    def __init__(self, plan: Plan, array: Callable[[Buffer], np.ndarray]):
        self.parts: list[list[Call]] = [[]]
        for step in (*plan.forward, *plan.backward):
            if isinstance(step, Meet):
                self.parts.append([])
            else:
                args = (array(a) if isinstance(a, Buffer) else a for a in step.args)
                self.parts[-1].append(Call(step.operation, *args))
        self.images, self.targets, self.samples = (array(b) for b in (plan.images, plan.targets, plan.samples))
        self.clock, self.scale, self.metrics = (array(b) for b in (plan.clock, plan.scale, plan.metrics))
        self.output = array(plan.output)

    def calls(self) -> Iterable[Call]:
        return itertools.chain(*self.parts)

    def run(self, part: int, n: int) -> None:
        for call in self.parts[part]:
            call(n)


def some_batch(n: int, shape=SHAPE, classes=CLASSES, seed=1) -> tuple[np.ndarray, np.ndarray]:
    """n random images and labels."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, *shape)), rng.integers(0, classes, n)


def gradients(
    net: Layer, images, labels, shares: Iterable[int], *, chunk=None, dtype="float64", backend=None, state=None, step=0,
    loss: Loss | None = None,
) -> tuple[float, dict[str, np.ndarray]]:  # fmt: skip
    """Mean loss of a batch and all its gradients, from chunks with these shares of the samples."""
    loss = loss or CrossEntropy()
    shares = [share for share in shares if share]
    assert sum(shares) == len(images)
    plan = make_plan(net, images.shape[1:], chunk or max(shares), len(images), loss=loss, dtype=dtype)
    count = loss.weights(labels.reshape(len(labels), -1)).sum()
    chunks, first = [], 0
    for share in shares:
        part = slice(first, first + share)
        chunks.append(Chunk(plan, backend, state, beside=chunks[0] if chunks else None))
        chunks[-1].load(images[part], labels[part], first=first, count=count, step=step)
        first += share
    run_together(chunks)
    mean = sum(float(chunk.program.metrics[0]) for chunk in chunks) / count
    measured = [chunk.measured() for chunk in chunks]
    total = {name: sum(one[name] for one in measured) for name in measured[0]}
    statistics = {e.name for e in plan.layout.entries if e.part == "statistic"}
    total = {name: value for name, value in total.items() if name not in statistics}
    return mean, total | chunks[0].products(len(images))


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

    def plan(self, p, x):
        def turn(n, y, dx):
            self.output = y[:n].copy()
            dx[:n] = self.dy[:n].reshape(dx[:n].shape)

        p.forward(turn, x.data, x.grad)


def output_size(net: Layer, shape: tuple[int, ...]) -> tuple[int, ...]:
    return make_plan(net, shape, 1).output_shape


def count(shape: tuple[int, ...]) -> int:
    return math.prod(shape)
