"""A net layer by layer: output shapes, parameters, FLOPs and memory, read off the plan that training follows."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from ..engine import Plan, Plannable, Planner, Tensor, make_plan
from ..engine.buffer import Buffer, aligned
from ..engine.plan import Step
from ..kernels.losses import METRICS

CHUNK = 32  # samples: the most that the Trainer takes by itself


@dataclass(frozen=True)
class Row:
    """One layer, without those inside it."""

    path: str  # "4.body.1", as in the names of parameters; empty for the net itself
    type: str
    output_shape: tuple[int, ...]
    parameters: int
    flops: int  # of a sample, forward
    memory: int  # bytes of a chunk in training: the output and its gradient, scratch


@dataclass(frozen=True, repr=False)
class Summary:
    """The layers of a net and their totals; printed, a table."""

    input_shape: tuple[int, ...]
    chunk: int
    rows: tuple[Row, ...]
    parameters: int
    flops: int  # of a sample, forward
    training_flops: int  # of a sample, forward and both gradients; images need none
    memory: int  # bytes of a chunk in training: the arena, images and labels, the row of gradients
    memory_before_reuse: int  # the same, had each buffer of the arena a place of its own

    def __str__(self) -> str:
        lines = [("layer", "type", "output", "parameters", "FLOPs", "bytes"), ("", "input", f"{self.input_shape}")]
        for row in self.rows:
            indent = "  " * sum(_is_inside(row.path, other.path) for other in self.rows)
            numbers = (f"{number:,}" for number in (row.parameters, row.flops, row.memory))
            lines.append((indent + (row.path or "net"), row.type, f"{row.output_shape}", *numbers))
        widths = [max(len(line[i]) for line in lines if i < len(line)) for i in range(6)]
        formats = [f"{{:{'<' if i < 3 else '>'}{width}}}" for i, width in enumerate(widths)]
        table = ["  ".join(formats[: len(line)]).format(*line).rstrip() for line in lines]
        rule = "─" * (sum(widths) + 2 * 5)
        work = f"FLOPs of a sample: {self.flops:,} forward, {self.training_flops:,} in training"
        room = f"bytes of a chunk of {self.chunk}: {self.memory:,} ({self.memory_before_reuse:,} before reuse)"
        return "\n".join([table[0], rule, *table[1:], rule, f"{self.parameters:,} parameters; {work}", room])

    __repr__ = __str__


class _AnyLoss:
    """Takes the place of cross-entropy, for outputs of any shape: its step reads the output and writes its gradient."""

    def plan(self, p: Planner, y: Tensor) -> None:
        p.target(math.prod(y.shape[:-1]), "int64")  # labels, of the sample or of each pixel
        p.forward(_AnyLoss, y.data, y.grad, p.buffer((p.chunk, METRICS), "float64"))


def summarize(net: Plannable, input_shape: tuple[int, ...], chunk: int) -> Summary:
    """The summary of a net for samples of input_shape. Raises ShapeError naming the layer that does not fit."""
    plan = make_plan(net, input_shape, chunk, loss=_AnyLoss())
    steps = (step for step in (*plan.forward, *plan.backward) if isinstance(step, Step))
    arena = {root for step in steps for root in (buffer.root for buffer in step.buffers()) if root.space == "arena"}
    others = plan.bytes["io"] + plan.bytes["row"]
    return Summary(
        input_shape=input_shape,
        chunk=chunk,
        rows=_rows(plan, arena),
        parameters=plan.layout.parameter_count(),
        flops=sum(layer.flops for layer in plan.layers),
        training_flops=sum(layer.training_flops for layer in plan.layers),
        memory=plan.bytes["arena"] + others,
        memory_before_reuse=sum(aligned(buffer.nbytes) for buffer in arena) + others,
    )


def _rows(plan: Plan, arena: set[Buffer]) -> tuple[Row, ...]:
    """A row per layer; containers that have nothing of their own, such as Sequential, have none."""
    parameters: Counter[str] = Counter()
    for entry in plan.layout.parameters:
        parameters[entry.name.rpartition(".")[0]] += entry.size
    rows = []
    for layer in plan.layers:
        memory = sum(aligned(buffer.nbytes) for buffer in layer.buffers if buffer in arena)
        row = Row(layer.path, layer.type, layer.shape, parameters[layer.path], layer.flops, memory)
        is_container = any(_is_inside(other.path, layer.path) for other in plan.layers)
        if not is_container or row.parameters or row.memory:
            rows.append(row)
    return tuple(rows)


def _is_inside(path: str, other: str) -> bool:
    """Whether the layer at `path` is somewhere inside the one at `other`."""
    return path.startswith(f"{other}." if other else "") and path != other
