"""A plan bound to memory and kernels: a list of calls with every argument fixed, which a step only walks through."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import CorenetError, LayerError
from ..kernels.backend import Backend
from ..kernels.operation import Operation
from .buffer import Buffer
from .plan import Place, Plan, Step


class Call:
    """An operation with its arguments after the first, n, bound; `link` gives it the code to run."""

    __slots__ = ("args", "operation", "run")

    def __init__(self, operation: Operation | Callable, *args: Any):
        self.operation, self.args = operation, args
        self.run: Callable = operation

    def link(self, backend: Backend) -> None:
        """Find, or compile, the implementation for these arguments."""
        if isinstance(self.operation, Operation):
            self.run = backend.function(self.operation, (1, *self.args))

    def __call__(self, n: int) -> None:
        self.run(n, *self.args)


@dataclass(frozen=True)
class Own:
    """A function of a layer of the user's own, whose errors name the layer. Raises LayerError."""

    function: Callable
    layer: Place | None
    phase: str  # "forward" or "backward"

    def __call__(self, n: int, *args: Any) -> None:
        try:
            result = self.function(n, *args)
        except MemoryError:  # says nothing of the function: it can be done again
            raise
        except Exception as error:
            below = error.__traceback__.tb_next if error.__traceback__ else None  # from the function on
            text = "".join(traceback.format_exception(type(error), error, below))
            raise LayerError(f"{self.layer}, {self.phase}, raised {type(error).__name__}\n\n{text}") from error
        if result is not None:
            fix = "Results are written into the arrays it was given: y[:n] = …"
            what = f"{self.layer}, {self.phase}"
            raise LayerError(
                what, expected="a function that returns nothing", got=f"a {type(result).__name__}", fix=fix
            )


class Program:
    """One chunk's forward and backward over given spaces (see `buffer`); running it allocates nothing."""

    def __init__(self, plan: Plan, spaces: dict[str, np.ndarray]):
        def bind(step: Step, phase: str) -> Call:
            own = not isinstance(step.operation, Operation)
            operation = Own(step.operation, step.layer, phase) if own else step.operation
            return Call(operation, *(arg.array(spaces) if isinstance(arg, Buffer) else arg for arg in step.args))

        self.plan = plan
        self.forward_calls = [bind(step, "forward") for step in plan.forward if isinstance(step, Step)]
        self.backward_calls = [bind(step, "backward") for step in plan.backward if isinstance(step, Step)]
        # The same calls, cut where all chunks of a batch meet.
        self.parts: list[list[Call]] = [[]]
        calls = iter(self.calls())
        for step in (*plan.forward, *plan.backward):
            if isinstance(step, Step):
                self.parts[-1].append(next(calls))
            else:
                self.parts.append([])
        self.images, self.targets, self.samples = (b.array(spaces) for b in (plan.images, plan.targets, plan.samples))
        self.clock, self.scale, self.metrics = (b.array(spaces) for b in (plan.clock, plan.scale, plan.metrics))
        self.output = plan.output.array(spaces)

    def calls(self) -> Iterable[Call]:
        """All calls, to be linked before the first run."""
        return (*self.forward_calls, *self.backward_calls)

    def layer_of(self, call: Call) -> Place | None:
        """Whose step a call is; None: the loss's."""
        steps = (step for step in (*self.plan.forward, *self.plan.backward) if isinstance(step, Step))
        return next(step.layer for step, other in zip(steps, self.calls(), strict=True) if other is call)

    def forward(self, n: int) -> None:
        """The forward steps for the first n samples of `images`: prediction."""
        for call in self.forward_calls:
            call.run(n, *call.args)

    def run(self, part: int, n: int) -> None:
        """The steps between two places where all chunks meet; a plan without such places has one part.

        In training they leave the chunk's gradients in its row, x and dy of dense layers in the panels.
        """
        for call in self.parts[part]:
            call.run(n, *call.args)


def private_spaces(plan: Plan) -> dict[str, np.ndarray]:
    """Fresh memory, cache-line aligned, for the spaces of one chunk at work."""
    return {name: aligned_bytes(plan.bytes[name]) for name in ("arena", "io", "row")}


def aligned_bytes(size: int) -> np.ndarray:
    """Zeroed bytes whose address is a multiple of 64."""
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def initial_state(plan: Plan, seed: int) -> np.ndarray:
    """The flat state vector at the start: parameters keyed by (seed, number), statistics as given.

    Raises LayerError where an init does not give a parameter's values.
    """
    layout = plan.layout
    state = aligned_bytes(layout.size * layout.dtype.itemsize).view(layout.dtype)
    for number, entry in enumerate(layout.entries):
        if entry.part == "statistic":
            layout.get(state, entry)[:] = plan.statistics[entry.name]
        elif entry.size:
            generator = np.random.Generator(np.random.Philox(key=np.array([seed, number], np.uint64)))
            try:
                layout.get(state, entry)[:] = plan.initializers[entry.name](generator, entry.shape)
            except CorenetError:
                raise
            except (TypeError, ValueError) as error:
                expected, got = f"values of shape {entry.shape} from init(generator, shape)", type(error).__name__
                raise LayerError(f"parameter {entry.name!r}", expected=expected, got=f"{got}: {error}") from error
    return state
