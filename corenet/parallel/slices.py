"""A worker's slice of a batch: forward and backward of consecutive chunks, up to the gradients in their rows.

A plan whose chunks meet in the middle of the net (`meetings.py`) is computed in parts: one part of every chunk of the
slice, a meeting with the other workers, the next part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine import Call, Plan, aligned_bytes
from ..kernels import clock, losses
from .chunks import ChunkRunner
from .meetings import Meetings
from .watch import CHUNKS


@dataclass(frozen=True)
class Job:
    """An epoch, or the part of it before step `until`: the data set's arrays (see `exchange`), the number of the
    epoch's first step, and what its randomness needs.
    """

    data: dict[str, np.ndarray]
    epoch: int
    first_step: int
    until: int
    seed: int
    shift: int  # augmentation: pixels, at most
    flip: bool

    def samples(self, step: int, batch: int) -> int:
        """How many samples the batch of a step has."""
        return min(batch, len(self.data["order"]) - (step - self.first_step) * batch)


class SliceRunner:
    """Computes chunks of batches."""

    def __init__(
        self, plan: Plan, arrays: dict[str, np.ndarray], source: np.dtype, scaling: Any, most: int,
        runner: Callable[..., ChunkRunner] = ChunkRunner,
    ):  # fmt: skip
        """arrays: those of the segments state and batch, and this worker's beats; most: chunks in a slice."""
        self.plan = plan
        shared = {"panels": arrays["panels"], "common": aligned_bytes(plan.bytes["common"])}
        self.meetings = Meetings(plan, arrays["rows"], arrays["counts"], shared["common"])
        # Chunks that wait for others keep their activations, so each of a slice needs a runner of its own.
        self.runners = [
            runner(plan, arrays["state"], shared, source, scaling) for _ in range(most if len(self.meetings) else 1)
        ]
        self.counts, self.metrics, self.beats = arrays["counts"], arrays["metrics"], arrays["beats"]
        self.scale = np.zeros(1)  # of this batch
        self.weigh = Call(losses.batch_scale, np.zeros(1), np.zeros(1, np.int64), 0, self.scale)

    def calls(self) -> Iterator[Call]:
        """All calls, to be linked before the first run."""
        for runner in self.runners:
            yield from runner.calls()
        yield self.weigh
        yield from self.meetings.calls()

    def run(self, job: Job, step: int, low: int, high: int, meet: Callable[[], None]) -> None:
        """Chunks low … high of the batch of a step; `meet` waits for all workers."""
        plan, data = self.plan, job.data
        samples, first = job.samples(step, plan.batch), (step - job.first_step) * plan.batch
        self.weigh.run(samples, data["weights"], data["order"], first, self.scale)
        for part in range(len(self.meetings) + 1):
            if part:
                meet()
                self.meetings.combine(part - 1, math.ceil(samples / plan.chunk))
            for chunk in range(low, high):
                runner = self.runners[(chunk - low) % len(self.runners)]
                place = chunk * plan.chunk
                count = min(plan.chunk, samples - place)
                if part == 0:
                    runner.clock[clock.SEED], runner.clock[clock.EPOCH] = job.seed, job.epoch
                    runner.clock[clock.STEP] = step
                    runner.load(count, data["x"], data["order"], first + place, job.shift, job.flip)
                    runner.start(count, place, data["y"], self.scale)
                    self.counts[chunk] = count
                runner.train(step, count, part)
                self.meetings.share(part, chunk, runner.row)
                self.metrics[chunk] = runner.metrics
                self.beats[CHUNKS] += 1
