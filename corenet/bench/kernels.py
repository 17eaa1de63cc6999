"""The suite of layers: forward pass and both gradients of each, as the engine plans them, checked and timed.

A layer is planned as part of a net, so what is timed is what training runs: the algorithm that the layer chooses, and
all steps that belong to a pass, such as padding. Samples go through by chunks, whose memory is used again and again;
the weight gradient of a dense layer is one product over the batch, and its rows are stored by each chunk first.

    pass       work counted     steps
    forward    2 · MACs · n     all forward steps of the layer: padding, product, bias
    data       2 · MACs · n     backward steps that give the gradient of the input
    weights    2 · MACs · n     backward steps that give those of weight and bias

MACs are those of direct convolution, so an algorithm that needs fewer can exceed 100 % of the machine's peak.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
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
from .peaks import Peaks
from .peers import Peer
from .rounds import Measure, Spread, interleave, ratios, repeated

PASSES = ("forward", "data", "weights")
BOUND = 1e-4  # of the largest number of a result: what a kernel may be wrong by; Winograd rounds to some 1e-6
ALGORITHMS = {"conv": "direct", "winograd": "Winograd 4×4", "depthwise": "depthwise", "linear": "dense"}


class WrongResult(Exception):
    """A kernel does not compute what its definition says: its speed is of no interest."""


@dataclass(frozen=True)
class How:
    """How long, and in what portions, everything is measured."""

    batch: int = 128
    rounds: int = 7
    seconds: float = 0.05  # a measurement takes


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


class Bench:
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
        self.passes = self._passes(program, place, batch_gradient=bool(plan.products))
        self.results = {"forward": [y.data], "data": [x.grad], "weights": []}
        row, gradient = (self.spaces[name].view(plan.layout.dtype) for name in ("row", "gradient"))
        self._gradients = [
            plan.layout.get(gradient if entry.part == "product" else row, entry) for entry in plan.layout.parameters
        ]

    def _passes(self, program: Program, place: Place, batch_gradient: bool) -> dict[str, Pass]:
        plan, spaces = program.plan, self.spaces
        parts: dict[str, tuple[list[Call], list[Buffer]]] = {name: ([], []) for name in PASSES}
        for phase, steps, calls in (
            ("forward", plan.forward, program.forward_calls),
            ("backward", plan.backward, program.backward_calls),
        ):
            for step, call in zip(steps, calls, strict=True):
                assert isinstance(step, Step)
                if step.layer is place:
                    of_weights = any(buffer.root.space in ("row", "panels") for buffer in step.buffers())
                    name = phase if phase == "forward" else "weights" if of_weights else "data"
                    parts[name][0].append(call)
                    parts[name][1].extend(step.buffers())
        product = None
        for each in plan.products:
            entry = next(entry for entry in plan.layout.entries if entry.name == each.name)
            dw = plan.layout.get(spaces["gradient"].view(plan.layout.dtype), entry)
            product = Call(each.operation, each.x.array(spaces), each.dy.array(spaces), dw, 0, len(dw))
            parts["weights"][1].extend([each.x, each.dy, Buffer(dw.shape, dw.dtype.str, "gradient")])
        return {
            name: Pass(
                calls,
                self.chunk,
                self.batch if batch_gradient and name == "weights" else self.chunk,
                arrays,
                program.clock,
                product if name == "weights" else None,
            )
            for name, (calls, arrays) in parts.items()
        }

    def result(self, name: str) -> list[np.ndarray]:
        """What a pass has computed."""
        return self._gradients if name == "weights" else [buffer.array(self.spaces) for buffer in self.results[name]]


def verify(case: Case, batch: int, bench: Bench) -> dict[str, float]:
    """Run all passes as they are linked, and as NumPy defines direct convolution; the largest errors, relatively.

    Raises WrongResult for one that is beyond the bound.
    """
    definition = Bench(case, batch, direct=True)
    errors = {}
    for name in PASSES:
        bench.passes[name].run()
        definition.passes[name].run()
        pairs = zip(bench.result(name), definition.result(name), strict=True)
        error = max(float(np.abs(got - right).max() / np.abs(right).max()) for got, right in pairs)
        if not error <= BOUND:  # also if it is NaN
            what = f"{case.name}, {name}, {bench.passes[name].algorithm}"
            raise WrongResult(f"{what}: expected an error of at most {BOUND:g} of the largest number, got {error:g}")
        errors[name] = error
    return errors


def measure(case: Case, how: How, backend: Backend, peaks: Peaks, peer: Peer | None = None) -> Iterator[dict[str, Any]]:
    """Check and time a layer in the calling thread, on one core, beside a peer if there is one; a line for each pass.

    Raises WrongResult before anything is timed.
    """
    bench = Bench(case, how.batch)
    for one in bench.passes.values():
        one.link(backend)
    errors = verify(case, how.batch, bench)
    ways = {}
    if peer is not None:
        what = {"layer": case.description(), "batch": how.batch, "chunk": bench.chunk, "seconds": how.seconds}
        ways = peer.ask(do="layer", **what)["ways"]
    for name, one in bench.passes.items():
        contestants = {"corenet": _gflops(one, bench.flops, how.seconds)}
        if peer is not None:
            contestants["peer"] = partial(_gflops_of_peer, peer, name, bench.flops, how.seconds)
        spreads = interleave(contestants, how.rounds)
        line = _line(case, name, one, bench, spreads["corenet"], peaks)
        line["error"] = errors[name]
        if peer is not None:
            ratio = ratios(spreads["corenet"], spreads["peer"])
            line["peer"] = {"way": ways[name], **spreads["peer"].to_json(), "ratio": ratio.to_json()}
        yield line


def _gflops(one: Pass, flops: int, seconds: float) -> Measure:
    rate = repeated(one.run, seconds)
    return lambda: rate() * one.samples * flops * 1e-9


def _gflops_of_peer(peer: Peer, name: str, flops: int, seconds: float) -> float:
    return peer.ask(do="pass", name=name, seconds=seconds)["rate"] * flops * 1e-9


def _line(case: Case, name: str, one: Pass, bench: Bench, spread: Spread, peaks: Peaks) -> dict[str, Any]:
    intensity = one.samples * bench.flops / one.bytes
    return {
        "name": f"{case.name}, {name}",
        "unit": "GFLOP/s",
        **spread.to_json(),
        "layer": case.name,
        "pass": name,
        "nets": case.nets,
        "algorithm": one.algorithm,
        "chunk": bench.chunk,
        "samples": one.samples,
        "flops": one.samples * bench.flops,
        "bytes": one.bytes,
        "intensity": intensity,
        "roofline": min(peaks.compute(1), intensity * peaks.memory(1)),
        "percent_of_peak": 100 * spread.median / peaks.compute(1),
    }
