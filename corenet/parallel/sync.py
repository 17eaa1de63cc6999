"""Strategy "sync": all workers finish a batch before any begins the next; exact, whatever their number.

worker w, bound to its cores                            shared memory
───────────────────────────────                         ─────────────
for each chunk of its slice:
    forward, backward                                   state[t & 1]                       read
    gradients and measured statistics → row             rows[chunk]                        write
    x and dy of dense layers → panels                   panels                             write
── barrier ──
for its own shard of the state vector:
    fold the rows along the tree                        rows                               read, used up
    dense gradients, whole batch at once                panels                             read
    optimizer                                           state, slots [(t+1) & 1]           write
── barrier ──  t ← t + 1

If the loss or a gradient is not finite, all see so at the end of the step, in `status`. Then training stops there, or
the owners put back what they had before it, and the step counts as one without effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np

from ..engine import Call, Plan
from ..optim import Optimizer
from .balance import Balancer
from .barrier import Barrier
from .exchange import COMPUTE, FAILED_STEP, SAMPLES, STEP, WAIT
from .reduction import ShardReducer
from .slices import Job, SliceRunner
from .watch import MEETINGS


class Sync:
    """A worker's side of the strategy."""

    def __init__(
        self, plan: Plan, optimizer: Optimizer, arrays: dict[str, np.ndarray], source: np.dtype, scaling: Any,
        rank: int, workers: int, barrier: Barrier, balancer: Balancer,
    ):  # fmt: skip
        """arrays: those of the segments control, state and batch, of times and beats this worker's; source and scaling
        as for ChunkRunner.
        """
        self.plan, self.arrays, self.source = plan, arrays, (source, scaling)
        self.rank, self.workers = rank, workers
        self.barrier, self.balancer = barrier, balancer
        self.slice = SliceRunner(plan, arrays, source, scaling, -(-plan.chunks // workers))
        self.reducer = ShardReducer(plan, optimizer, arrays, rank, workers)
        self.status, self.times, self.beats = arrays["status"], arrays["times"], arrays["beats"]
        self.waited = 0.0  # seconds of this step

    def calls(self) -> Iterator[Call]:
        """All calls, to be linked before the first run."""
        yield from self.slice.calls()
        yield from self.reducer.calls()

    def meet(self) -> None:
        """Wait for all workers."""
        self.beats[MEETINGS] += 1
        begin = perf_counter()
        self.barrier.wait()
        self.waited += perf_counter() - begin

    def epoch(self, job: Job, skip: bool = False) -> None:
        """Train on every sample once, in the given order; begin at the step that `status` says.

        skip: go on after a step whose loss or gradient is not finite, as if it had not been. Raises Aborted when the
        parent calls the run off.
        """
        plan, status = self.plan, self.status
        begin, self.waited = perf_counter(), 0.0
        for step in range(int(status[STEP]), job.until):
            samples = job.samples(step, plan.batch)
            chunks = math.ceil(samples / plan.chunk)
            borders = self.balancer.borders(chunks, self.workers)
            low, high = borders[self.rank], borders[self.rank + 1]
            self.slice.run(job, step, low, high, self.meet)
            self.meet()
            index = step - job.first_step
            if not self.reducer.run(step, float(job.data["rates"][index]), chunks, samples, self.meet):
                status[FAILED_STEP] = step
            self.meet()
            failed = status[FAILED_STEP] >= 0
            if failed and skip:
                self.reducer.undo(step)
                self.meet()
            if self.rank == 0:
                if failed and skip:
                    job.data["skipped"][index] = True
                    status[FAILED_STEP] = -1
                status[STEP] = step + 1
            now = perf_counter()
            self.times[SAMPLES] += max(0, min(high * plan.chunk, samples) - low * plan.chunk)
            self.times[COMPUTE] += now - begin - self.waited
            self.times[WAIT] += self.waited
            begin, self.waited = now, 0.0
            if failed and not skip:
                return


STRATEGIES = {"sync": Sync}
