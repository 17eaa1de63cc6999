"""Computing chunks: one worker's programs, fed from the shared data set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..engine import Call, Plan, Program
from ..engine.program import private_spaces
from ..kernels import clock, gather


class ChunkRunner:
    """Picks a chunk's samples, scales them, and runs a plan's steps on them, from either copy of the state."""

    def __init__(self, plan: Plan, state: np.ndarray, shared: dict[str, np.ndarray], source: np.dtype, scaling: Any):
        """state (2, size); shared: bytes of the spaces "panels" and "common", in training; scaling: mean and std per
        channel, of values in 0 … 1.
        """
        self.plan = plan
        private = private_spaces(plan)
        self.programs = [Program(plan, {**private, **shared, "state": copy.view(np.uint8)}) for copy in state]
        self.row = private["row"].view(plan.layout.dtype)
        one = self.programs[0]
        self.images, self.targets, self.samples, self.output = one.images, one.targets, one.samples, one.output
        self.clock, self.loss_scale, self.metrics = one.clock, one.scale, one.metrics
        channels = plan.input_shape[-1]
        mean, std = (np.broadcast_to(np.asarray(values, np.float64), channels) for values in scaling)
        unit = 255.0 if source == np.uint8 else 1.0
        self.scale = (1 / (unit * std)).astype(plan.layout.dtype)
        self.offset = (-mean / std).astype(plan.layout.dtype)
        # Typical arguments, to compile for; the data set itself comes with each job.
        images = np.zeros((1, *plan.input_shape), source)
        one_sample = np.zeros(1, np.int64)
        self.pick_images = Call(gather.images, *self._image_args(images, one_sample, 0, 0, False))
        self.pick_targets = Call(gather.targets, np.zeros_like(self.targets[:1]), self.samples, self.targets)

    def _image_args(self, x: np.ndarray, order: np.ndarray, first: int, shift: int, flip: bool) -> tuple:
        return x, order, first, self.images, self.samples, self.scale, self.offset, self.clock, shift, flip

    def calls(self) -> Iterator[Call]:
        """All calls, to be linked before the first run."""
        for program in self.programs:
            yield from program.calls()
        yield self.pick_images
        yield self.pick_targets

    def load(self, n: int, x: np.ndarray, order: np.ndarray, first: int, shift: int = 0, flip: bool = False) -> None:
        """Fill the chunk's images with samples order[first] … order[first + n]."""
        self.pick_images.run(n, *self._image_args(x, order, first, shift, flip))

    def start(self, n: int, place: int, y: np.ndarray, scale: np.ndarray) -> None:
        """Take the targets of the loaded chunk, whose first sample is number `place` of a batch with that scale."""
        self.pick_targets.run(n, y, self.samples, self.targets)
        self.clock[clock.FIRST] = place
        self.loss_scale[:] = scale

    def train(self, step: int, n: int, part: int = 0) -> None:
        """Forward and backward of the loaded chunk; of a plan whose chunks meet, one part of it."""
        self.programs[step & 1].run(part, n)

    def predict(self, step: int, n: int) -> np.ndarray:
        """The net's output (n, …) for the loaded chunk; valid until the next one."""
        self.programs[step & 1].forward(n)
        return self.output[:n]
