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
from corenet.parallel.reduction import ShardReducer


class Steps:
    """A net in training, alone: `step` takes a batch and gives its mean loss."""

    def __init__(
        self, net: Layer, optimizer: Optimizer, shape: tuple[int, ...], chunk: int, batch: int, backend: Backend,
        seed: int = 0, loss: Loss | None = None,
    ):  # fmt: skip
        self.loss, self.optimizer = loss or CrossEntropy(), optimizer
        self.plan = make_plan(net, shape, chunk, batch, loss=self.loss)
        fields = {**state_fields(self.plan, optimizer), **batch_fields(self.plan)}
        self.arrays = {name: zeros(size, np.dtype(dtype)) for name, (size, dtype) in fields.items()}
        self.arrays["state"][0] = initial_state(self.plan, seed)
        scaling = (0.0,), (1.0,)
        images = np.dtype(np.float32)
        self.runner = ChunkRunner(self.plan, self.arrays["state"], {"panels": self.arrays["panels"]}, images, scaling)
        self.reducer = ShardReducer(self.plan, optimizer, self.arrays, 0, 1)
        for call in (*self.runner.calls(), *self.reducer.calls()):
            call.link(backend)
        self.steps, self.seed = 0, seed

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """Views of the latest parameters and running statistics."""
        return self.plan.layout.arrays(self.arrays["state"][self.steps & 1])

    def step(self, images: np.ndarray, labels: np.ndarray, epoch: float = 0.0) -> float:
        samples, size = len(images), self.plan.chunk
        order, time = np.arange(samples), self.runner.clock
        time[clock.SEED], time[clock.STEP] = self.seed, self.steps
        targets = labels.reshape(samples, -1)
        scale = 1 / self.loss.weights(targets).sum()
        chunks = -(-samples // size)
        for chunk in range(chunks):
            first = chunk * size
            n = min(size, samples - first)
            self.runner.load(n, images, order, first)
            self.runner.start(n, first, targets, scale)
            self.runner.train(self.steps, n)
            self.arrays["rows"][chunk] = self.runner.row
            self.arrays["metrics"][chunk] = self.runner.metrics
            self.arrays["counts"][chunk] = n
        loss = self.loss.means(self.arrays["metrics"][:chunks].sum(axis=0))["loss"]
        self.reducer.run(self.steps, self.optimizer.lr.rate(epoch), chunks, samples, lambda: None)
        self.steps += 1
        return loss


def zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Zeros at a cache line, as shared memory has them."""
    return aligned_bytes(int(np.prod(shape)) * dtype.itemsize).view(dtype).reshape(shape)
