"""A layer as training runs it, alone: its steps out of a plan, with memory and random numbers of their own.

The layer stands in a net between a source and a loss that do nothing, so that it has the gradients on both sides which
it has inside of a net. Samples go through by chunks, whose memory is used again and again; the weight gradient of a
dense layer is one product over the batch, for which each chunk has its rows stored.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine import Call, Program, Tensor, aligned_bytes, initial_state, make_plan
from ..engine.buffer import Buffer, place_by_lifetime
from ..engine.plan import Place, Step
from ..kernels.backend import Backend
from ..kernels.clock import FIRST
from ..nn import Conv2d, Layer, Sequential
from ..train.chunking import choose_chunk
from .layers import Case

PASSES = ("forward", "data", "weights")
ALGORITHMS = {
    "conv": "direct", "winograd_4x3": "Winograd 4×4", "winograd_2x3": "Winograd 2×2", "winograd_4x5": "Winograd 4×4",
    "depthwise": "depthwise", "linear": "dense",
}  # fmt: skip


class _Source(Layer):
    """Takes the place of the layers before: its output has a gradient, as the images have not."""

    output: Tensor

    def plan(self, p: Any, x: Tensor) -> Tensor:
        self.output = y = p.activation(x.shape)
        p.forward(_nothing, x.data, y.data)
        p.backward(_nothing, y.grad)
        return y


class _Loss:
    """Takes the place of what comes after."""

    input: Tensor

    def plan(self, p: Any, y: Tensor) -> None:
        self.input = y
        p.forward(_nothing, y.data, y.grad)


def _nothing(n: int, *arrays: np.ndarray) -> None:
    """Inputs and gradients of outputs are random numbers, put there before."""


@dataclass
class Pass:
    """The calls of a pass over a chunk; for products over a batch, chunks of rows before and a call after them."""

    calls: list[Call]
    n: int  # samples of a call
    samples: int  # of everything together
    arrays: list[Buffer]
    clock: np.ndarray
    product: Call | None = None

    def run(self) -> None:
        """Do all of it once."""
        for first in range(0, self.samples, self.n):
            self.clock[FIRST] = first
            for call in self.calls:
                call.run(self.n, *call.args)
        if self.product is not None:
            self.product.run(self.samples, *self.product.args)

    @property
    def bytes(self) -> int:
        """Of all arrays that the steps name, each counted once."""
        return sum(root.nbytes for root in dict.fromkeys(buffer.root for buffer in self.arrays))

    @property
    def algorithm(self) -> str:
        """What multiplies."""
        families = [call.operation.name.partition(".")[0] for call in self._all if hasattr(call.operation, "name")]
        return next((ALGORITHMS[family] for family in families if family in ALGORITHMS), "other")

    @property
    def _all(self) -> list[Call]:
        return [*self.calls, *([] if self.product is None else [self.product])]

    def link(self, backend: Backend) -> None:
        """Compile what the calls need."""
        for call in self._all:
            call.link(backend)


class PlannedLayer:
    """A layer with memory and random numbers, and its passes; no two arrays share memory, so each can run alone."""

    def __init__(self, case: Case, batch: int, *, direct: bool = False):
        layer = copy.copy(case.layer)
        if direct and isinstance(layer, Conv2d):
            layer.algorithm = "direct"
        source, loss = _Source(), _Loss()
        net, shape = Sequential(source, layer), case.input_shape
        self.chunk = choose_chunk(make_plan(net, shape, 1, loss=loss), batch)
        self.batch = batch - batch % self.chunk  # whole chunks
        plan = make_plan(net, shape, self.chunk, self.batch, loss=loss)
        place = next(place for place in plan.layers if place.path == "1")
        self.flops = place.flops
        steps = [step for step in (*plan.forward, *plan.backward) if isinstance(step, Step)]
        roots = [buffer.root for step in steps for buffer in step.buffers() if buffer.root.space == "arena"]
        plan.bytes["arena"] = place_by_lifetime(dict.fromkeys(roots, (0, 0)))
        self.spaces = {name: aligned_bytes(size) for name, size in plan.bytes.items()}
        for name in ("arena", "row", "gradient", "panels"):
            self.spaces[name][:] = 0xFF  # NaN: what is read must have been written
        state = self.spaces["state"].view(plan.layout.dtype)
        state[:] = initial_state(plan, seed=1)
        x, y = source.output, loss.input
        random = np.random.default_rng(1)
        for buffer in (x.data, y.grad):
            array = buffer.array(self.spaces)
            array[:] = random.standard_normal(array.shape, np.float32)
        program = Program(plan, self.spaces)
        self.passes = self._passes(program, place)
        self._results = {"forward": y.data, "data": x.grad}
        row, gradient = (self.spaces[name].view(plan.layout.dtype) for name in ("row", "gradient"))
        self._gradients = [
            plan.layout.get(gradient if entry.part == "product" else row, entry) for entry in plan.layout.parameters
        ]

    def _passes(self, program: Program, place: Place) -> dict[str, Pass]:
        plan = program.plan
        passes = {name: Pass([], self.chunk, self.chunk, [], program.clock) for name in PASSES}
        for step, call in zip((*plan.forward, *plan.backward), program.calls(), strict=True):
            if isinstance(step, Step) and step.layer is place:
                # Gradients of parameters lie in the chunk's row, or are made of panels.
                of_weights = any(buffer.root.space in ("row", "panels") for buffer in step.buffers())
                backward = "weights" if of_weights else "data"
                one = passes["forward" if call in program.forward_calls else backward]
                one.calls.append(call)
                one.arrays.extend(step.buffers())
        for product in plan.products:
            entry = next(entry for entry in plan.layout.entries if entry.name == product.name)
            dw = plan.layout.get(self.spaces["gradient"].view(plan.layout.dtype), entry)
            panels = product.x, product.dy
            one = passes["weights"]
            one.samples = self.batch
            one.product = Call(product.operation, *(panel.array(self.spaces) for panel in panels), dw, 0, len(dw))
            one.arrays.extend([*panels, Buffer(dw.shape, dw.dtype.str, "gradient")])
        return passes

    def result(self, name: str) -> list[np.ndarray]:
        """What a pass has computed."""
        return self._gradients if name == "weights" else [self._results[name].array(self.spaces)]
