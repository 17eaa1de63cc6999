"""Where a number stopped being finite: the step is computed once more, kernel by kernel, with a look after each.

State and data of the step are still in shared memory, and a chunk is a pure function of them; so nothing has to be
watched while training goes well.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..engine.plan import Place
from ..kernels import clock
from ..kernels.backend import Backend
from .chunks import ChunkRunner
from .slices import Job, SliceRunner
from .sync import Sync


class _Found(Exception):
    """The first number that is not finite."""

    def __init__(self, chunk: int, layer: Place | None, phase: str):
        super().__init__(chunk, layer, phase)
        self.chunk, self.where = chunk, f"{layer or 'the loss'}, {phase}"


class _Watched(ChunkRunner):
    """Looks at all that a kernel was given, after each."""

    def train(self, step: int, n: int, part: int = 0) -> None:
        program = self.programs[step & 1]
        forward = {id(call) for call in program.forward_calls}
        for call in program.parts[part]:
            call.run(n, *call.args)
            if not all(_finite(array, n) for array in call.args if isinstance(array, np.ndarray)):
                phase = "forward" if id(call) in forward else "backward"
                raise _Found(int(self.clock[clock.FIRST]) // self.plan.chunk, program.layer_of(call), phase)


def _finite(array: np.ndarray, n: int) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array[:n] if array.ndim > 1 else array).all())


def first_not_finite(sync: Sync, backend: Backend, job: Job, step: int) -> dict[str, Any] | None:
    """The chunk, layer and phase of the first; None if all chunks are finite, and only the sums over them are not."""
    plan = sync.plan
    arrays = {name: np.zeros_like(sync.arrays[name]) for name in ("rows", "counts", "metrics", "panels")}
    arrays |= {name: sync.arrays[name] for name in ("state", "beats")}
    again = SliceRunner(plan, arrays, *sync.source, plan.chunks, _Watched)
    for call in again.calls():
        call.link(backend)
    try:
        again.run(job, step, 0, math.ceil(job.samples(step, plan.batch) / plan.chunk), lambda: None)
    except _Found as found:
        return {"chunk": found.chunk, "where": found.where}
    return None
