"""One call of `Trainer.fit`: epochs over a data set, and between them validation, checkpoints, callbacks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..datasets import Dataset
from ..errors import CorenetError, FileError
from ..kernels.philox import permutation
from ..parallel.exchange import COMPUTE, SAMPLES, WAIT
from .callback import Callback, Progress
from .checkpoint import RunState
from .session import Begun, Session, not_finite

if TYPE_CHECKING:
    from .trainer import Trainer


@dataclass(frozen=True)
class Saving:
    """When checkpoints are made, and what if one cannot be written."""

    write: Callable[[Begun], None]
    every: int | None  # steps; None: after epochs only
    on_error: str  # "stop" or "warn"


class Run:
    """Trains epoch by epoch; results go into the trainer's history."""

    def __init__(
        self, trainer: Trainer, session: Session, data: Dataset, targets: np.ndarray, held_out: Dataset | None,
        batch_size: int, callbacks: Sequence[Callback], saving: Saving | None, resumed: RunState | None,
    ):  # fmt: skip
        """resumed: the run whose begun epoch is the first."""
        self.trainer, self.session, self.history = trainer, session, trainer.history
        self.data, self.targets, self.held_out = data, targets, held_out
        self.batch_size, self.callbacks, self.saving, self.resumed = batch_size, callbacks, saving, resumed

    def epoch(self, last: int) -> None:
        """One epoch, of which some steps may be done already; `last` is the number of this call's last one."""
        record = self._train()
        if self.held_out is not None:
            scores = self.trainer.evaluate(self.held_out)
            record |= {f"val_{name}": score for name, score in scores.items()}
        self._tell_recoveries()
        self.trainer.optimizer.lr.observe(record)
        self.history.epochs.append(record)
        self.trainer.records.append(record)
        self.history.seconds_train += record["seconds"]
        self._save(Begun())
        for callback in self.callbacks:
            callback.on_epoch(record, last)

    def _train(self) -> dict[str, Any]:
        trainer, session, n = self.trainer, self.session, len(self.data)
        resumed, self.resumed = self.resumed, None
        begun = Begun() if resumed is None else resumed.begun
        before, epoch, steps = session.snapshot(), trainer.epochs_done, math.ceil(n / self.batch_size)
        order, rate = permutation(trainer.seed, epoch, n), trainer.optimizer.lr.rate
        rates = [rate(epoch + index / steps) for index in range(steps)]
        job = session.begin_epoch(self.data, self.targets, epoch, trainer.seed, order, rates, begun)
        begin = perf_counter()

        def tick() -> None:
            self._tell_recoveries()
            done = session.step - job["first_step"]
            samples = min(done * self.batch_size, n)
            new = samples - begun.steps * self.batch_size
            if new:  # before, there is no rate
                loss, seconds = trainer.loss.means(session.totals)["loss"], perf_counter() - begin
                progress = Progress(epoch + 1, done, steps, samples, loss, new / seconds, seconds)
                for callback in self.callbacks:
                    callback.on_progress(progress)

        try:
            for until in self._pauses(job["first_step"], begun.steps, steps):
                session.train(job, until, trainer.nonfinite == "skip", tick if self.callbacks else None)
                self._note_times()
                if not np.isfinite(session.state).all():  # no loss has seen what the last step made
                    raise not_finite(f"a parameter after step {session.step - 1} (epoch {epoch + 1})")
                if until < steps:
                    self._save(session.begun(job))
        except CorenetError:
            if not session.crew.closed:  # numbers that are not finite, or a checkpoint that cannot be written
                session.restore(before)
                trainer.resumed = resumed
            raise
        trainer.epochs_done += 1
        seconds = perf_counter() - begin
        skipped = {"skipped_steps": len(session.begun(job).skipped)} if trainer.nonfinite == "skip" else {}
        return {
            "epoch": trainer.epochs_done,
            **trainer.loss.means(session.totals),
            "learning_rate": rates[0],
            **skipped,
            "seconds": seconds,
            "images_per_second": (n - begun.steps * self.batch_size) / seconds,
        }

    def _pauses(self, first_step: int, done: int, steps: int) -> list[int]:
        """After how many steps of the epoch the workers pause: for checkpoints, and at its end."""
        every = None if self.saving is None else self.saving.every
        inside = range(done + 1, steps) if every else ()
        return [until for until in inside if every and (first_step + until) % every == 0] + [steps]

    def _note_times(self) -> None:
        for record, row in zip(self.history.workers, self.session.crew.times, strict=True):
            record.samples += int(row[SAMPLES])
            record.compute += float(row[COMPUTE])
            record.wait += float(row[WAIT])

    def _save(self, begun: Begun) -> None:
        if self.saving is not None:
            try:
                self.saving.write(begun)
            except FileError as error:
                if self.saving.on_error == "stop":
                    raise
                warnings.warn(f"no checkpoint: {error}", RuntimeWarning, stacklevel=4)

    def _tell_recoveries(self) -> None:
        recoveries = self.session.crew.recoveries
        while recoveries:
            self.history.recoveries.append(recoveries.pop(0))
            for callback in self.callbacks:
                callback.on_recovery(self.history.recoveries[-1])
