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
"""

from __future__ import annotations

import math
from time import perf_counter

import numpy as np

from ..kernels import clock
from .balance import Balancer
from .barrier import Barrier
from .chunks import ChunkRunner
from .exchange import COMPUTE, FAILED_STEP, SAMPLES, STEP, WAIT
from .reduction import ShardReducer


class Sync:
    """A worker's side of the strategy."""

    def __init__(
        self, rank: int, workers: int, runner: ChunkRunner, reducer: ShardReducer, barrier: Barrier, balancer: Balancer,
        arrays: dict[str, np.ndarray],
    ):  # fmt: skip
        self.rank, self.workers = rank, workers
        self.runner, self.reducer, self.barrier, self.balancer = runner, reducer, barrier, balancer
        self.status, self.times = arrays["status"], arrays["times"][rank]
        # A view of each chunk's row, made once: the loop below creates no arrays.
        self.rows = list(arrays["rows"])
        self.counts, self.metrics = arrays["counts"], list(arrays["metrics"])

        self.waited = 0.0  # seconds of this step

    def meet(self) -> None:
        """Wait for all workers."""
        begin = perf_counter()
        self.barrier.wait()
        self.waited += perf_counter() - begin

    def epoch(
        self, *, epoch: int, first_step: int, seed: int, x: np.ndarray, y: np.ndarray, order: np.ndarray, shift: int,
        flip: bool,
    ) -> None:  # fmt: skip
        """Train on every sample once, in the given order. Raises Aborted when the parent calls the run off."""
        runner, plan = self.runner, self.runner.plan
        n, batch = len(order), plan.batch
        steps = math.ceil(n / batch)
        time = runner.clock
        time[clock.SEED], time[clock.EPOCH] = seed, epoch
        begin, self.waited = perf_counter(), 0.0
        for index in range(steps):
            step, first = first_step + index, index * batch
            samples = min(batch, n - first)
            chunks = math.ceil(samples / plan.chunk)
            borders = self.balancer.borders(chunks, self.workers)
            time[clock.STEP], time[clock.COUNT] = step, samples
            for chunk in range(borders[self.rank], borders[self.rank + 1]):
                place = chunk * plan.chunk
                count = min(plan.chunk, samples - place)
                runner.load(count, x, order, first + place, shift, flip)
                runner.train(step, count, place, y)
                self.rows[chunk][:] = runner.row
                self.metrics[chunk][:] = runner.metrics
                self.counts[chunk] = count
                self.times[SAMPLES] += count
            self.meet()
            self.reducer.run(step, epoch + index / steps, chunks, samples, self.meet)
            if self.rank == 0 and not math.isfinite(self.reducer.totals[1 - (step & 1), 0]):
                self.status[FAILED_STEP] = step
            self.meet()
            if self.rank == 0:
                self.status[STEP] = step + 1
            end = perf_counter()
            self.times[COMPUTE] += end - begin - self.waited
            self.times[WAIT] += self.waited
            begin, self.waited = end, 0.0
            if self.status[FAILED_STEP] >= 0:
                return


STRATEGIES = {"sync": Sync}
