"""Beginning slowly: linear warm-up before any schedule, one cycle up and down, and the rate of a larger batch."""

from __future__ import annotations

import math
from collections.abc import Mapping

from .schedule import Schedule, as_schedule, below_one, positive, whole


class Warmup(Schedule):
    """Linear warm-up, then the schedule (Goyal et al. 2017).

    From start · r to r over the first `epochs` epochs, r being the schedule's first rate; then the schedule from its
    own beginning, so that its epochs count from the end of the warm-up: a run of E epochs takes Cosine(lr, E − epochs),
    and a `Plateau` observes no epoch that lies, even partly, in the warm-up.
    PyTorch's SequentialLR of LinearLR(start_factor=start, total_iters=epochs) and the schedule.
    """

    def __init__(self, schedule: float | Schedule, epochs: float, start: float = 0.1):
        self.schedule = as_schedule("Warmup", schedule)
        self.epochs = positive("Warmup", "epochs", epochs)
        self.start = below_one("Warmup", "start", start)

    def rate(self, epoch: float) -> float:
        if epoch >= self.epochs:
            return self.schedule.rate(epoch - self.epochs)
        return self.schedule.rate(0) * (self.start + (1 - self.start) * epoch / self.epochs)

    @property
    def watches(self) -> str:
        return self.schedule.watches

    def observe(self, record: Mapping[str, float]) -> None:
        epoch = record["epoch"] - self.epochs  # as the schedule counts; records count from 1
        if epoch >= 1:
            self.schedule.observe({**record, "epoch": epoch})


class OneCycle(Schedule):
    """Up from lr/div_factor to lr, down to lr/(div_factor · final_div_factor), by half cosines (Smith & Topin 2018).

    The top is reached after the part pct_start of the epochs. PyTorch's OneCycleLR, with lr for max_lr, counts in steps
    and reaches both ends one step earlier: so does this one if it is told the steps_per_epoch.
    """

    def __init__(
        self, lr: float, epochs: float, pct_start: float = 0.3, div_factor: float = 25.0,
        final_div_factor: float = 1e4, steps_per_epoch: int | None = None,
    ):  # fmt: skip
        self.lr = positive("OneCycle", "lr", lr)
        self.epochs = positive("OneCycle", "epochs", epochs)
        self.pct_start = below_one("OneCycle", "pct_start", pct_start)
        self.div_factor = positive("OneCycle", "div_factor", div_factor)
        self.final_div_factor = positive("OneCycle", "final_div_factor", final_div_factor)
        self.steps_per_epoch = steps_per_epoch
        if steps_per_epoch is not None:
            whole("OneCycle", "steps_per_epoch", steps_per_epoch, least=1)

    def rate(self, epoch: float) -> float:
        step = 1 / self.steps_per_epoch if self.steps_per_epoch else 0.0
        top, end = self.pct_start * self.epochs - step, self.epochs - step
        first = self.lr / self.div_factor
        if epoch < top:
            return _half_cosine(first, self.lr, epoch / top)
        return _half_cosine(self.lr, first / self.final_div_factor, min((epoch - top) / (end - top), 1.0))


def _half_cosine(begin: float, end: float, done: float) -> float:
    return end + (begin - end) * (1 + math.cos(math.pi * done)) / 2


def scaled_lr(lr: float, batch_size: int, reference_batch: int = 256) -> float:
    """The linear scaling rule (Goyal et al. 2017): lr, which is good for reference_batch, for another batch size.

    A batch that is k times as large makes one step where k were made before, so its step is k times as long. Large
    batches need a `Warmup` as well.
    """
    batch_size = whole("scaled_lr", "batch_size", batch_size, least=1)
    reference_batch = whole("scaled_lr", "reference_batch", reference_batch, least=1)
    return positive("scaled_lr", "lr", lr) * batch_size / reference_batch
