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
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np

from ..engine import Call, Plan, aligned_bytes
from ..kernels import clock, losses
from ..optim import Optimizer
from .balance import Balancer
from .barrier import Barrier
from .chunks import ChunkRunner
from .exchange import COMPUTE, FAILED_STEP, SAMPLES, STEP, WAIT
from .meetings import Meetings
from .reduction import ShardReducer
from .watch import CHUNKS, MEETINGS


class Sync:
    """A worker's side of the strategy."""

    def __init__(
        self, plan: Plan, optimizer: Optimizer, arrays: dict[str, np.ndarray], source: np.dtype, scaling: Any,
        rank: int, workers: int, barrier: Barrier, balancer: Balancer,
    ):  # fmt: skip
        """arrays: those of the segments control, state and batch, of times and beats this worker's; source and scaling
        as for ChunkRunner.
        """
        self.plan, self.rank, self.workers = plan, rank, workers
        self.barrier, self.balancer = barrier, balancer
        shared = {"panels": arrays["panels"], "common": aligned_bytes(plan.bytes["common"])}
        self.meetings = Meetings(plan, arrays["rows"], arrays["counts"], shared["common"])
        # Chunks that wait for others keep their activations, so each of a slice needs a runner of its own.
        waiting = -(-plan.chunks // workers) if len(self.meetings) else 1
        self.runners = [ChunkRunner(plan, arrays["state"], shared, source, scaling) for _ in range(waiting)]
        self.reducer = ShardReducer(plan, optimizer, arrays, rank, workers)
        self.status, self.times, self.beats = arrays["status"], arrays["times"], arrays["beats"]
        self.counts, self.metrics = arrays["counts"], arrays["metrics"]
        self.scale = np.zeros(1)  # of this batch
        self.weigh = Call(losses.batch_scale, np.zeros(1), np.zeros(1, np.int64), 0, self.scale)
        self.waited = 0.0  # seconds of this step

    def calls(self) -> Iterator[Call]:
        """All calls, to be linked before the first run."""
        for runner in self.runners:
            yield from runner.calls()
        yield self.weigh
        yield from self.meetings.calls()
        yield from self.reducer.calls()

    def meet(self) -> None:
        """Wait for all workers."""
        self.beats[MEETINGS] += 1
        begin = perf_counter()
        self.barrier.wait()
        self.waited += perf_counter() - begin

    def epoch(
        self, data: dict[str, np.ndarray], *, epoch: int, first_step: int, seed: int, shift: int, flip: bool
    ) -> None:
        """Train on every sample once, in the given order, from the step on that `status` says: the first of the epoch
        was number `first_step`. Raises Aborted when the parent calls the run off.
        """
        plan, x, y, weights = self.plan, data["x"], data["y"], data["weights"]
        order, rates = data["order"], data["rates"]
        n, batch = len(order), plan.batch
        steps = math.ceil(n / batch)
        for runner in self.runners:
            runner.clock[clock.SEED], runner.clock[clock.EPOCH] = seed, epoch
        begin, self.waited = perf_counter(), 0.0
        for index in range(int(self.status[STEP]) - first_step, steps):
            step, first = first_step + index, index * batch
            samples = min(batch, n - first)
            chunks = math.ceil(samples / plan.chunk)
            borders = self.balancer.borders(chunks, self.workers)
            low, high = borders[self.rank], borders[self.rank + 1]
            self.weigh.run(samples, weights, order, first, self.scale)
            for part in range(len(self.meetings) + 1):
                if part:
                    self.meet()
                    self.meetings.combine(part - 1, chunks)
                for chunk in range(low, high):
                    runner = self.runners[(chunk - low) % len(self.runners)]
                    place = chunk * plan.chunk
                    count = min(plan.chunk, samples - place)
                    if part == 0:
                        runner.clock[clock.STEP] = step
                        runner.load(count, x, order, first + place, shift, flip)
                        runner.start(count, place, y, self.scale)
                        self.counts[chunk] = count
                    runner.train(step, count, part)
                    self.meetings.share(part, chunk, runner.row)
                    self.metrics[chunk] = runner.metrics
                    self.beats[CHUNKS] += 1
            self.meet()
            self.reducer.run(step, float(rates[index]), chunks, samples, self.meet)
            if self.rank == 0 and not math.isfinite(self.reducer.totals[1 - (step & 1), 0]):
                self.status[FAILED_STEP] = step
            self.meet()
            if self.rank == 0:
                self.status[STEP] = step + 1
            end = perf_counter()
            self.times[SAMPLES] += max(0, min(high * plan.chunk, samples) - low * plan.chunk)
            self.times[COMPUTE] += end - begin - self.waited
            self.times[WAIT] += self.waited
            begin, self.waited = end, 0.0
            if self.status[FAILED_STEP] >= 0:
                return


STRATEGIES = {"sync": Sync}
