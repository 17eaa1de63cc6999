"""The Trainer: a net, an optimizer and a crew of workers, driven from one process.

The parent computes nothing itself. It lays the memory out, tells the workers what to do, and reads the results where
they lie. Parameters exist once, in shared memory, from the first use until `close`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np

from .. import optim
from ..datasets import Dataset, as_dataset, check_labels
from ..engine import Plan, initial_state, make_plan
from ..errors import ConfigError, ShapeError, TrainingError
from ..kernels import backend
from ..kernels.cross_entropy import CORRECT, LOSS
from ..kernels.philox import permutation
from ..nn import Layer, describe
from ..nn.loss import get_loss
from ..parallel.balance import get_balancer
from ..parallel.crew import Crew
from ..parallel.exchange import COMPUTE, FAILED_STEP, SAMPLES, STEP, WAIT, batch_fields, data_fields, state_fields
from ..parallel.sync import STRATEGIES
from ..parallel.topology import plan_layout
from .callback import Callback, PrintEpochs, Progress, RunInfo
from .chunking import PREDICTION_CHUNK, choose_chunk
from .history import History, WorkerRecord
from .model_file import ModelInfo, save_model


class Trainer:
    """Trains a net on worker processes, and predicts with it. Use it in a `with` block, or call `close`.

    Args:
        net: a layer, usually `nn.Sequential`, from images (height, width, channels) to logits (classes,).
        optimizer: one of `corenet.optim`; `optim.Adam(1e-3)` if None.
        loss: "cross_entropy".
        workers: processes; "auto": as many as the usable cores allow.
        threads: threads of each worker; workers × threads must not exceed the usable cores.
        chunk: samples that go through the net together; "auto" depends on the net and the batch size only. It decides
            the statistics of BatchNorm2d and the order of summation, the workers do not.
        strategy: "sync".
        balance: "equal".
        seed: of initial parameters, order, augmentation and dropout; 0 … 2⁶³−1.
        share_cores: allow more threads than usable cores.
        kernels: "auto", "numba" or "numpy".

    Raises ConfigError for settings that are not possible.
    """

    def __init__(
        self,
        net: Layer,
        optimizer: optim.Optimizer | None = None,
        loss: str = "cross_entropy",
        workers: int | Literal["auto"] = "auto",
        threads: int = 1,
        chunk: int | Literal["auto"] = "auto",
        strategy: str = "sync",
        balance: str = "equal",
        seed: int = 0,
        *,
        share_cores: bool = False,
        kernels: str = "auto",
    ):
        if not isinstance(net, Layer):
            raise ConfigError("net", expected="a layer of corenet.nn", got=repr(net), fix="See corenet.models")
        if optimizer is not None and not isinstance(optimizer, optim.Optimizer):
            raise ConfigError("optimizer", expected="one of corenet.optim", got=repr(optimizer))
        if strategy not in STRATEGIES:
            raise ConfigError("strategy", expected="one of " + ", ".join(map(repr, STRATEGIES)), got=repr(strategy))
        if kernels not in backend.NAMES:
            raise ConfigError("kernels", expected="one of " + ", ".join(map(repr, backend.NAMES)), got=repr(kernels))
        get_balancer(balance)
        self.net = net
        self.optimizer = optimizer or optim.Adam(1e-3)
        self.loss = get_loss(loss)
        self.layout = plan_layout(workers, threads, share_cores)
        self.chunk = chunk if chunk == "auto" else positive_integer("chunk", chunk)
        self.strategy, self.balance, self.kernels = strategy, balance, kernels
        self.seed = positive_integer("seed", seed, least=0, most=2**63 - 1)
        self.epochs_done = 0
        self.classes: tuple[str, ...] = ()
        self.history = History()
        self._net = describe(net)
        self._optimizer = optim.describe(self.optimizer)
        self._crew: Crew | None = None
        self._input_shape: tuple[int, ...] | None = None
        self._scaling: tuple[tuple[float, ...], tuple[float, ...]] = ((0.0,), (1.0,))
        self._data_name = ""
        self._plan: Plan | None = None  # of training, once fit was called
        self._state: np.ndarray | None = None  # the latest copy, when there is no crew
        self._prepared: set[tuple] = set()
        self._data: dict[int, tuple[str, Dataset]] = {}

    def __enter__(self) -> Trainer:
        self._workers()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; parameters stay, and the next call starts new workers."""
        if self._crew is not None and not self._crew.closed:
            self._keep_state()
            self._crew.close()
        self._crew = None
        self._prepared.clear()
        self._data.clear()

    # Training.

    def fit(
        self,
        train: Any,
        *,
        epochs: int = 1,
        batch_size: int = 32,
        validation: Any = None,
        callbacks: Sequence[Callback] | None = None,
    ) -> History:
        """Train for some epochs over (images, labels) or a Dataset, each sample once per epoch; the history of this call.

        Calling it again continues where the last call ended. By default one line per epoch is printed; callbacks=()
        prints nothing. Raises DataError, ShapeError or ConfigError before any work, TrainingError if the loss is no
        longer finite, WorkerError if a worker is lost.
        """
        epochs = positive_integer("epochs", epochs)
        batch_size = positive_integer("batch_size", batch_size)
        callbacks = [PrintEpochs()] if callbacks is None else list(callbacks)
        data = as_dataset(train)
        held_out = None if validation is None else as_dataset(validation)
        self._adopt(data)
        for part in (data, held_out):
            if part is not None:
                self._check(part)
                check_labels(part, self._outputs())
        chunk = choose_chunk(self._net, batch_size) if self.chunk == "auto" else min(self.chunk, batch_size)
        crew = self._workers()
        crew.wait_started()
        self._plan = plan = self._make_plan(chunk, batch_size)
        layout = self.layout
        info = RunInfo(
            data.name, len(data), epochs, batch_size, chunk, layout.workers, layout.threads, layout.reason,
            crew.backend_reason, plan.layout.parameter_count(),
        )  # fmt: skip
        for callback in callbacks:
            callback.on_start(info)
        history = self.history = History()
        history.workers = [WorkerRecord(rank, cores) for rank, cores in enumerate(layout.cpus)]
        begin = perf_counter()
        self._prepare_training(data, chunk, batch_size)
        if held_out is not None:
            self._prepare_prediction(held_out)
        self._compile(callbacks)
        history.seconds_compile = perf_counter() - begin
        name = self._shared(data)
        for _ in range(epochs):
            record = self._epoch(name, data, batch_size, epochs, callbacks)
            if held_out is not None:
                scores = self.evaluate(held_out)
                record |= {"val_loss": scores["loss"], "val_accuracy": scores["accuracy"]}
            history.epochs.append(record)
            history.seconds_train += record["seconds"]
            for callback in callbacks:
                callback.on_epoch(record, epochs)
        for callback in callbacks:
            callback.on_end(history)
        return history

    def _epoch(
        self, name: str, data: Dataset, batch_size: int, epochs: int, callbacks: Sequence[Callback]
    ) -> dict[str, Any]:
        crew = self._workers()
        epoch, step = self.epochs_done, int(crew.status[STEP])
        n, steps = len(data), math.ceil(len(data) / batch_size)
        batch = crew.segments["batch"]
        batch["totals"][:] = 0
        crew.segments[name]["order"][:] = permutation(self.seed, epoch, n)
        begin = perf_counter()

        def tick() -> None:
            done = int(crew.status[STEP]) - step
            samples = min(done * batch_size, n)
            if samples:
                loss = float(batch["totals"][(step + done) & 1, LOSS]) / samples
                rate = samples / (perf_counter() - begin)
                for callback in callbacks:
                    callback.on_progress(Progress(epoch + 1, done, steps, samples, loss, rate))

        job = {"do": "train", "data": name, "epoch": epoch, "first_step": step, "seed": self.seed}
        crew.run({**job, "shift": data.shift, "flip": data.flip}, tick if callbacks else None)
        if crew.status[FAILED_STEP] >= 0:
            failed, crew.status[FAILED_STEP] = int(crew.status[FAILED_STEP]), -1
            raise TrainingError(
                f"the loss at step {failed} (epoch {epoch + 1})", expected="a finite number", got="inf or NaN",
                fix="Lower the learning rate, or scale the inputs",
            )  # fmt: skip
        seconds = perf_counter() - begin
        self.epochs_done += 1
        for record, times in zip(self.history.workers, crew.times, strict=True):
            record.samples += int(times[SAMPLES])
            record.compute += float(times[COMPUTE])
            record.wait += float(times[WAIT])
        totals = batch["totals"][int(crew.status[STEP]) & 1]
        return {
            "epoch": self.epochs_done,
            "loss": float(totals[LOSS]) / n,
            "accuracy": float(totals[CORRECT]) / n,
            "learning_rate": self.optimizer.lr.rate(epoch),
            "seconds": seconds,
            "images_per_second": n / seconds,
        }

    # Using the net.

    def predict(self, x: Any) -> np.ndarray:
        """Class probabilities (n, classes) float32 of images (n, h, w), (n, h, w, c) or a Dataset."""
        return self.loss.predictions(self._forward(as_dataset(x)))

    def evaluate(self, data: Any) -> dict[str, float]:
        """Mean loss and accuracy on (images, labels) or a Dataset: {"loss": …, "accuracy": …}."""
        dataset = as_dataset(data)
        self._adopt(dataset)
        self._check(dataset)
        check_labels(dataset, self._outputs())
        return self.loss.scores(self._forward(dataset), dataset.y)

    def _forward(self, data: Dataset) -> np.ndarray:
        self._adopt(data)
        self._check(data)
        crew = self._workers()
        self._prepare_prediction(data)
        self._compile(())
        name = self._shared(data)
        crew.segments[name]["order"][:] = np.arange(len(data))
        shape = (len(data), self._outputs())
        output = crew.share("output", {"output": (shape, "float32")})
        crew.run({"do": "predict", "data": name, "output": "output", "samples": len(data)})
        result = output["output"].copy()
        crew.forget("output")
        return result

    # The model.

    def parameters(self) -> dict[str, np.ndarray]:
        """Copies of all parameters and running statistics by name, such as "0.weight"."""
        return {name: array.copy() for name, array in self._layout().arrays(self._current()).items()}

    def params_sha256(self) -> str:
        """Hash of all parameters, flat in the order of the net, as little-endian float32."""
        return self._layout().sha256(self._current())

    def save(self, path: str | Path) -> None:
        """Write the net, its parameters and its input scaling to a model file, in one step. Raises FileError."""
        if self._input_shape is None:
            raise ConfigError("save", expected="a net that has seen data", got="none", fix="Call fit first")
        mean, std = self._scaling
        info = ModelInfo(
            self._net, self._input_shape, mean, std, self.classes, self.loss.name, self._optimizer, self.chunk, self.seed,
            self._data_name,
        )  # fmt: skip
        save_model(path, info, self.parameters())

    def restore(self, info: ModelInfo, tensors: dict[str, np.ndarray]) -> None:
        """Take over a saved model; its net must be this one. Raises ShapeError where a parameter does not fit."""
        self._input_shape = tuple(info.input_shape)
        self._scaling = tuple(info.mean), tuple(info.std)
        self.classes, self._data_name = tuple(info.classes), info.data
        plan = self._make_plan(1, None)
        wanted = {e.name: e.shape for e in plan.layout.entries if e.size}
        got = {name: array.shape for name, array in tensors.items()}
        if wanted != got:
            names = sorted(name for name in wanted.keys() | got.keys() if wanted.get(name) != got.get(name))
            raise ShapeError(
                f"parameter {names[0]!r} of the model file", expected=wanted.get(names[0], "none of that name"),
                got=got.get(names[0], "none"),
            )  # fmt: skip
        state = np.zeros(plan.layout.size, plan.layout.dtype)
        for name, array in plan.layout.arrays(state).items():
            array[:] = tensors[name]
        self._state = state

    # Inside.

    def _adopt(self, data: Dataset) -> None:
        """The first data set decides the input's shape and scaling, and names the classes."""
        if self._input_shape is None:
            make_plan(self.net, data.sample_shape, 1)  # raises where the net does not fit
            self._input_shape, self._scaling = data.sample_shape, (data.mean, data.std)
            self.classes, self._data_name = data.classes, data.name
        elif not self.classes:
            self.classes = data.classes

    def _check(self, data: Dataset) -> None:
        if data.sample_shape != self._input_shape:
            raise ShapeError(
                f"images of {data.name}", expected=f"{self._input_shape} (height, width, channels), as this net was made for",
                got=data.sample_shape, fix="Resize the images, or make a new Trainer",
            )  # fmt: skip

    def _make_plan(self, chunk: int, batch: int | None) -> Plan:
        """The plan of training with a batch size, of prediction with None."""
        assert self._input_shape is not None
        return make_plan(self.net, self._input_shape, chunk, batch, loss=None if batch is None else self.loss)

    def _layout(self):
        if self._input_shape is None:
            raise ConfigError("parameters", expected="a net that has seen data", got="none", fix="Call fit first")
        return self._make_plan(1, None).layout

    def _outputs(self) -> int:
        return math.prod(self._make_plan(1, None).output_shape)

    def _workers(self) -> Crew:
        if self._crew is None or self._crew.closed:
            if self._crew is not None:
                self.close()
            self._crew = Crew(self.layout, self.kernels)
        return self._crew

    def _share_state(self) -> None:
        crew = self._workers()
        if "state" in crew.segments:
            return
        plan = self._make_plan(1, 1)
        if self._state is None:
            self._state = initial_state(plan, self.seed)
        segment = crew.share("state", state_fields(plan, self.optimizer.slots))
        segment["state"][:] = self._state

    def _current(self) -> np.ndarray:
        """The latest parameters and statistics, flat."""
        if self._crew is not None and "state" in self._crew.segments:
            return self._crew.segments["state"]["state"][int(self._crew.status[STEP]) & 1]
        if self._state is None:
            self._state = initial_state(self._make_plan(1, 1), self.seed)
        return self._state

    def _keep_state(self) -> None:
        if self._crew is not None and "state" in self._crew.segments:
            self._state = self._current().copy()

    def _prepare_training(self, data: Dataset, chunk: int, batch_size: int) -> None:
        crew, key = self._workers(), ("train", data.x.dtype.str, chunk, batch_size)
        self._share_state()
        if key in self._prepared:
            return
        self._prepared = {k for k in self._prepared if k[0] != "train"} | {key}
        assert self._plan is not None
        crew.share("batch", batch_fields(self._plan))
        crew.tell({
            "do": "prepare_training", "net": self._net, "input_shape": self._input_shape, "loss": self.loss.name,
            "optimizer": self._optimizer, "chunk": chunk, "batch": batch_size, "strategy": self.strategy,
            "balance": self.balance, "source": data.x.dtype.str, "scaling": self._scaling,
        })  # fmt: skip

    def _prepare_prediction(self, data: Dataset) -> None:
        crew, key = self._workers(), ("predict", data.x.dtype.str)
        self._share_state()
        if key in self._prepared:
            return
        self._prepared.add(key)
        crew.tell({
            "do": "prepare_prediction", "net": self._net, "input_shape": self._input_shape, "chunk": PREDICTION_CHUNK,
            "source": data.x.dtype.str, "scaling": self._scaling,
        })  # fmt: skip

    def _compile(self, callbacks: Sequence[Callback]) -> None:
        """Have the workers share the compiling of all kernels they still need."""
        done = 0

        def hear(event: dict[str, Any]) -> None:
            nonlocal done
            if event["event"] == "compiled":
                done += 1
                for callback in callbacks:
                    callback.on_compile(done, event["kernels"])

        crew = self._workers()
        crew.run({"do": "compile"}, hear=hear)
        crew.run({"do": "link"})

    def _shared(self, data: Dataset) -> str:
        """The name of the segment that has a data set, copied anew, since arrays may have changed; two are kept."""
        crew, key = self._workers(), id(data.x)
        if key not in self._data:
            while len(self._data) >= 2:
                name, _ = self._data.pop(next(iter(self._data)))
                crew.forget(name)
            crew.share(f"data {key}", data_fields(data.x.shape, data.x.dtype.str))
        name = f"data {key}"
        self._data[key] = (name, data)  # keeps the array, and so its id, alive
        crew.segments[name]["x"][:] = data.x
        if data.y is not None:
            crew.segments[name]["y"][:] = data.y
        return name


def positive_integer(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Check a setting; ConfigError names it."""
    good = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not good or value < least or (most is not None and value > most):
        bound = f"an integer of at least {least}" + (f" and at most {most}" if most is not None else "")
        raise ConfigError(name, expected=bound, got=repr(value))
    return int(value)
