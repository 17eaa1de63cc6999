"""Training steps without processes: one worker's side of a step, driven by hand."""

from __future__ import annotations

import numpy as np

from corenet.engine import aligned_bytes, initial_state, make_plan
from corenet.kernels import clock
from corenet.kernels.backend import Backend
from corenet.nn import CrossEntropy, Layer
from corenet.nn.loss import Loss
from corenet.optim import Optimizer
from corenet.parallel.chunks import ChunkRunner
from corenet.parallel.exchange import batch_fields, state_fields
from corenet.parallel.meetings import Meetings
from corenet.parallel.reduction import ShardReducer


class Steps:
    """A net in training, alone: `step` takes a batch and gives its mean loss."""

    def __init__(
        self, net: Layer, optimizer: Optimizer, shape: tuple[int, ...], chunk: int, batch: int, backend: Backend,
        seed: int = 0, loss: Loss | None = None, dtype: str = "float32",
    ):  # fmt: skip
        self.loss, self.optimizer = loss or CrossEntropy(), optimizer
        self.plan = make_plan(net, shape, chunk, batch, loss=self.loss, dtype=dtype)
        fields = {**state_fields(self.plan, optimizer), **batch_fields(self.plan)}
        self.arrays = {name: zeros(size, np.dtype(dtype)) for name, (size, dtype) in fields.items()}
        self.arrays["state"][0] = initial_state(self.plan, seed)
        scaling = (0.0,), (1.0,)
        images = np.dtype(np.float32)
        shared = {"panels": self.arrays["panels"], "common": aligned_bytes(self.plan.bytes["common"])}
        self.meetings = Meetings(self.plan, self.arrays["rows"], self.arrays["counts"], shared["common"])
        self.runners = [
            ChunkRunner(self.plan, self.arrays["state"], shared, images, scaling)
            for _ in range(self.plan.chunks if len(self.meetings) else 1)
        ]
        self.reducer = ShardReducer(self.plan, optimizer, self.arrays, 0, 1)
        for user in (*self.runners, self.meetings, self.reducer):
            for call in user.calls():
                call.link(backend)
        self.steps, self.seed = 0, seed

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """Views of the latest parameters and running statistics."""
        return self.plan.layout.arrays(self.arrays["state"][self.steps & 1])

    def step(self, images: np.ndarray, labels: np.ndarray, epoch: float = 0.0) -> float:
        samples, size = len(images), self.plan.chunk
        order, chunks = np.arange(samples), -(-samples // size)
        targets = labels.reshape(samples, -1)
        scale = 1 / self.loss.weights(targets).sum()
        for part in range(len(self.meetings) + 1):
            if part:
                self.meetings.combine(part - 1, chunks)
            for chunk in range(chunks):
                runner, first = self.runners[chunk % len(self.runners)], chunk * size
                n = min(size, samples - first)
                if part == 0:
                    runner.clock[clock.SEED], runner.clock[clock.STEP] = self.seed, self.steps
                    runner.load(n, images, order, first)
                    runner.start(n, first, targets, scale)
                    self.arrays["counts"][chunk] = n
                runner.train(self.steps, n, part)
                self.meetings.share(part, chunk, runner.row)
                self.arrays["metrics"][chunk] = runner.metrics
        loss = self.loss.means(self.arrays["metrics"][:chunks].sum(axis=0))["loss"]
        self.reducer.run(self.steps, self.optimizer.lr.rate(epoch), chunks, samples, lambda: None)
        self.steps += 1
        return loss


def zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Zeros at a cache line, as shared memory has them."""
    return aligned_bytes(int(np.prod(shape)) * dtype.itemsize).view(dtype).reshape(shape)
