"""A net in shared memory: the crew of workers, the segments they were given, and what they have been prepared for.

The parent computes nothing itself. It lays the memory out, tells the workers what to do, and reads results where they
lie. Everything is prepared when it is first needed and kept: workers live across calls, kernels are compiled once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..datasets import Dataset
from ..engine import Plan, initial_state, make_plan
from ..errors import TrainingError
from ..kernels.losses import LOSS, METRICS
from ..nn import Layer, describe
from ..nn.description import user_layers
from ..nn.loss import Loss, describe_loss
from ..optim import Optimizer
from ..optim import describe as describe_optimizer
from ..parallel.crew import Crew
from ..parallel.exchange import FAILED_STEP, STEP, batch_fields, data_fields, state_fields
from ..parallel.user_layers import where_to_find
from .chunking import PREDICTION_CHUNK

KEPT_DATA = 2  # data sets that stay in shared memory: one to train on, one to validate

Scaling = tuple[tuple[float, ...], tuple[float, ...]]  # mean and std per channel, of pixel values in 0 … 1


@dataclass(frozen=True)
class Snapshot:
    """What training goes on from: state vector, the optimizer's numbers (None: zeros), steps done."""

    state: np.ndarray
    slots: np.ndarray | None = None
    step: int = 0
    average: np.ndarray | None = None  # of the weights, where it is kept


@dataclass(frozen=True)
class Begun:
    """What has been done of an epoch: steps, the sums of their metrics, and which of them were skipped."""

    steps: int = 0
    totals: tuple[float, ...] = (0.0,) * METRICS
    skipped: tuple[int, ...] = ()


class Session:
    """One net for images of one shape, on one crew. Use `state` and `close`; the other methods are the Trainer's."""

    def __init__(
        self,
        crew: Crew,
        net: Layer,
        loss: Loss,
        optimizer: Optimizer,
        input_shape: tuple[int, ...],
        scaling: Scaling,
        begin: Snapshot,
        fuse: bool,
        precision: str,
    ):
        self.crew, self.net, self.loss, self.optimizer = crew, net, loss, optimizer
        how = {"fuse": fuse, "precision": precision}
        self._model = {"net": describe(net), "input_shape": input_shape, "scaling": scaling, **how}
        self._input_shape = input_shape
        self._prepared: set[tuple] = set()
        self._data: dict[int, Dataset] = {}
        plan = make_plan(net, input_shape, 1, 1, loss=loss)
        self._output_shape = plan.output_shape
        arrays = crew.share("state", state_fields(plan, optimizer)).arrays
        self._state, self._slots, self._average = arrays["state"], arrays["slots"], arrays["average"]
        self.restore(begin)
        crew.orders.clear()  # another net's
        kinds = user_layers(net)
        if kinds:
            crew.order("layers", {"do": "import_layers", **where_to_find(kinds)})

    @property
    def step(self) -> int:
        """Steps trained so far."""
        return int(self.crew.status[STEP])

    @property
    def state(self) -> np.ndarray:
        """The latest parameters and statistics, flat; a view of shared memory."""
        return self._state[self.step & 1]

    @property
    def used_state(self) -> np.ndarray:
        """What prediction uses: averaged weights where the optimizer keeps them, else the latest."""
        return self._average[self.step & 1] if self._average.size else self.state

    def snapshot(self) -> Snapshot:
        """A copy of all that training has to go on from."""
        average = self._average[self.step & 1].copy() if self._average.size else None
        return Snapshot(self.state.copy(), self._slots[self.step & 1].copy(), self.step, average)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot; only while the workers are idle."""
        self._state[:] = snapshot.state
        self._slots[:] = 0 if snapshot.slots is None else snapshot.slots
        if self._average.size:
            self._average[:] = snapshot.state if snapshot.average is None else snapshot.average
        self.crew.status[STEP] = snapshot.step

    @property
    def totals(self) -> np.ndarray:
        """Sums of the metrics over the epoch so far."""
        return self.crew.segments["batch"]["totals"][self.step & 1]

    def prepare_training(self, source: np.dtype, chunk: int, batch: int, strategy: str, balance: str) -> Plan:
        """Have the workers plan training on images of dtype `source`; the plan."""
        plan = make_plan(self.net, self._input_shape, chunk, batch, loss=self.loss)
        key = ("train", source.str, chunk, batch)
        if key not in self._prepared:
            self._prepared = {other for other in self._prepared if other[0] != "train"} | {key}
            self.crew.share("batch", batch_fields(plan))
            what = {"loss": describe_loss(self.loss), "optimizer": describe_optimizer(self.optimizer)}
            how = {"chunk": chunk, "batch": batch, "strategy": strategy, "balance": balance, "source": source.str}
            self.crew.order("training", {"do": "prepare_training", **self._model, **what, **how})
        return plan

    def prepare_prediction(self, source: np.dtype) -> None:
        """Have the workers plan prediction for images of dtype `source`."""
        key = ("predict", source.str)
        if key not in self._prepared:
            self._prepared.add(key)
            how = {"chunk": PREDICTION_CHUNK, "source": source.str}
            self.crew.order(f"prediction {source.str}", {"do": "prepare_prediction", **self._model, **how})

    def compile(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Have the workers share the compiling of all kernels they still need; progress(done, total) is told."""
        done = 0

        def hear(event: dict[str, Any]) -> None:
            nonlocal done
            if event["event"] == "compiled":
                done += 1
                if progress is not None:
                    progress(done, event["kernels"])

        self.crew.run({"do": "compile"}, hear=hear)
        self.crew.run({"do": "link"})

    def share_data(self, data: Dataset, targets: np.ndarray | None = None) -> str:
        """The name of the segment with a copy of the data set and its targets (n, elements), if they are needed.

        The copy is made anew each time, since arrays may have changed.
        """
        targets = np.zeros((len(data), 0), np.int64) if targets is None else targets
        key = id(data.x)
        name = f"data {key}"
        if not self._holds(data, targets):
            self._data.pop(key, None)
            while len(self._data) >= KEPT_DATA:
                oldest = next(iter(self._data))
                del self._data[oldest]
                self.crew.forget(f"data {oldest}")
            self.crew.share(name, data_fields(data.x.shape, data.x.dtype.str, targets.shape[1], targets.dtype.str))
        self._data[key] = data  # keeps the array, and so its id, alive
        arrays = self.crew.segments[name]
        arrays["x"][:] = data.x
        arrays["y"][:] = targets
        arrays["weights"][:] = self.loss.weights(targets)
        return name

    def _holds(self, data: Dataset, targets: np.ndarray) -> bool:
        """Whether there is a segment for these images with targets of that shape."""
        return id(data.x) in self._data and self.crew.segments[f"data {id(data.x)}"]["y"].shape == targets.shape

    def begin_epoch(
        self, data: Dataset, targets: np.ndarray, epoch: int, seed: int, order: np.ndarray, rates: list[float],
        begun: Begun,
    ) -> dict[str, Any]:  # fmt: skip
        """Lay an epoch's order and learning rates out, one for each step; what `train` has to be told.

        The data set is shared first if it is not (any more).
        """
        name = f"data {id(data.x)}" if self._holds(data, targets) else self.share_data(data, targets)
        self.crew.segments["batch"]["totals"][:] = begun.totals
        arrays = self.crew.segments[name].arrays
        arrays["order"][:] = order
        arrays["rates"][: len(rates)] = rates
        arrays["skipped"][:] = False
        arrays["skipped"][list(begun.skipped)] = True
        how = {"epoch": epoch, "first_step": self.step - begun.steps, "seed": seed}
        return {"data": name, **how, "shift": data.shift, "flip": data.flip}

    def train(self, job: dict[str, Any], until: int, skip: bool, tick: Callable[[], None] | None) -> None:
        """Train until so many steps of the epoch are done.

        Raises TrainingError if a loss or gradient is not finite, but with `skip` such steps are left out.
        """
        job = {**job, "until": job["first_step"] + until}
        self.crew.run({"do": "train", "skip": skip, **job}, tick)
        failed, self.crew.status[FAILED_STEP] = int(self.crew.status[FAILED_STEP]), -1
        if failed >= 0:
            raise self._not_finite(failed, job)

    def begun(self, job: dict[str, Any]) -> Begun:
        """What has been done of an epoch so far."""
        skipped = np.flatnonzero(self.crew.segments[job["data"]]["skipped"])
        return Begun(self.step - job["first_step"], tuple(map(float, self.totals)), tuple(map(int, skipped)))

    def _not_finite(self, step: int, job: dict[str, Any]) -> TrainingError:
        """What is known of the last step, which went wrong."""
        what = "a gradient" if np.isfinite(self.totals[LOSS]) else "the loss"
        found: dict[str, Any] = {}
        self.crew.run({"do": "diagnose", "step": step, **job}, hear=found.update)
        first = f"chunk {found['chunk']}: {found['where']}" if "where" in found else "the sum over all chunks"
        return not_finite(f"{what} at step {step} (epoch {job['epoch'] + 1})", f"inf or NaN, first in {first}")

    def outputs(self, data: Dataset) -> np.ndarray:
        """The net's outputs (n, …) for a data set."""
        self.prepare_prediction(data.x.dtype)
        self.compile()
        name = self.share_data(data)
        self.crew.segments[name]["order"][:] = np.arange(len(data))
        segment = self.crew.share("output", {"output": ((len(data), math.prod(self._output_shape)), "float32")})
        self.crew.run({"do": "predict", "data": name, "output": "output", "samples": len(data)})
        result = segment["output"].copy().reshape(len(data), *self._output_shape)
        self.crew.forget("output")
        return result


def not_finite(what: str, got: str = "inf or NaN") -> TrainingError:
    """The error of training that diverges."""
    fix = "Lower the learning rate, or scale the inputs; the net is as it was before this epoch"
    return TrainingError(what, expected="a finite number", got=got, fix=fix)


def first_state(net: Layer, loss: Loss, input_shape: tuple[int, ...], seed: int) -> np.ndarray:
    """The state vector that a seed gives."""
    return initial_state(make_plan(net, input_shape, 1, 1, loss=loss), seed)
