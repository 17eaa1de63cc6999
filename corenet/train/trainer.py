"""The Trainer: a net, an optimizer and the workers that train it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np

from .. import optim
from ..datasets import Dataset, as_dataset
from ..engine import Layout, Plan, make_plan
from ..errors import ConfigError
from ..kernels import backend
from ..nn import Layer, describe
from ..nn.description import check_arguments, user_layers
from ..nn.loss import Loss, describe_loss, get_loss
from ..parallel.balance import get_balancer
from ..parallel.crew import Crew
from ..parallel.sync import STRATEGIES
from ..parallel.topology import plan_layout
from ..parallel.user_layers import check_may_have_workers, where_to_find
from .callback import Callback, PrintEpochs, RunInfo
from .checkpoint import (
    RESUMED_SETTINGS,
    CheckpointFolder,
    RunState,
    check_same_run,
    fingerprint,
    is_best,
    pack,
    unpack,
)  # fmt: skip
from .chunking import choose_chunk
from .history import History, WorkerRecord
from .inputs import check_images, check_some_count, labelled
from .model_file import ModelInfo, save_model, state_of
from .run import Run, Saving
from .session import Begun, Scaling, Session, Snapshot, first_state
from .settings import duration, integer, one_of


class Trainer:
    """Trains a net on worker processes, and predicts with it. Use it in a `with` block, or call `close`.

    Args:
        net: a layer, usually `nn.Sequential`, from images (height, width, channels) to what the loss takes.
        optimizer: one of `corenet.optim`; `optim.Adam(1e-3)` if None.
        loss: "cross_entropy", "bce", "mse", "l1" or "huber", or one of corenet.nn with its arguments, such as
            nn.CrossEntropy(label_smoothing=0.1).
        workers: processes; "auto": as many as the usable cores allow.
        threads: threads of each worker; workers × threads must not exceed the usable cores.
        chunk: samples that go through the net together; "auto" depends on the net and the batch size only. It decides
            the statistics of batch normalisation and the order of summation; the workers do not.
        strategy: "sync".
        balance: "equal".
        seed: of initial parameters, order, augmentation and dropout; 0 … 2⁶³−1.
        share_cores: allow more threads than usable cores.
        kernels: "auto", "numba", "numpy" or "c", which is Numba's loop nests on the C library's tile; "c-avx2" and the
            like choose its instruction set, for comparisons; "null" computes nothing, to measure all else.
        fuse: let faster steps take the place of some runs of steps (`engine/fusion.py`); False, to compare.
        max_restarts: processes that may take the place of lost workers; when they are used up, the run goes on with
            fewer workers, to the same bits.
        nonfinite: "stop" if the loss or a gradient is not finite, with a TrainingError that names the step, the chunk
            and the layer; or "skip" that step, and count such in the epoch's record.
        worker_timeout: seconds without progress after which a worker counts as lost; longer than a chunk may take.
        precision: "float32", or "bf16": operands of matrix products are rounded to bfloat16, sums and everything else
            stay float32 (docs/precision.md). Needs kernels "auto" or "numba" and a CPU with AVX512-BF16.

    Raises ConfigError for settings that are not possible.
    """

    def __init__(
        self,
        net: Layer,
        optimizer: optim.Optimizer | None = None,
        loss: str | Loss = "cross_entropy",
        workers: int | Literal["auto"] = "auto",
        threads: int = 1,
        chunk: int | Literal["auto"] = "auto",
        strategy: str = "sync",
        balance: str = "equal",
        seed: int = 0,
        *,
        share_cores: bool = False,
        kernels: str = "auto",
        fuse: bool = True,
        precision: str = "float32",
        max_restarts: int = 3,
        worker_timeout: float = 60.0,
        nonfinite: str = "stop",
    ):
        check_may_have_workers()
        if not isinstance(net, Layer):
            raise ConfigError("net", expected="a layer of corenet.nn", got=repr(net), fix="See corenet.models")
        if optimizer is not None and not isinstance(optimizer, optim.Optimizer):
            raise ConfigError("optimizer", expected="one of corenet.optim", got=repr(optimizer))
        where_to_find(user_layers(net))  # raises for a class that no worker could import
        check_arguments(net)
        one_of("strategy", strategy, STRATEGIES)
        one_of("kernels", kernels, backend.NAMES)
        backend.check_precision(precision, kernels)
        one_of("nonfinite", nonfinite, ("stop", "skip"))
        get_balancer(balance)
        self.net = net
        self.optimizer = copy.deepcopy(optimizer or optim.Adam(1e-3))  # schedules may change while they are followed
        self.loss = get_loss(loss)
        if self.optimizer.lr.watches == "accuracy" and not self.loss.accuracy:
            expected = "a loss that knows an accuracy, which this schedule watches"
            raise ConfigError("optimizer", expected=expected, got=repr(self.loss), fix='Take mode="min"')
        self.layout = plan_layout(workers, threads, share_cores)
        self.chunk: int | Literal["auto"] = "auto" if chunk == "auto" else integer("chunk", chunk)
        self.strategy, self.balance, self.kernels = strategy, balance, kernels
        self.fuse, self.precision, self.nonfinite = bool(fuse), precision, nonfinite
        self.max_restarts = integer("max_restarts", max_restarts, least=0)
        self.worker_timeout = duration("worker_timeout", worker_timeout)
        self.seed = integer("seed", seed, least=0, most=2**63 - 1)
        self.epochs_done = 0
        self.records: list[dict[str, Any]] = []  # of all epochs, as in the histories
        self.classes: tuple[str, ...] = ()
        self.history = History()
        self._crew: Crew | None = None
        self._session: Session | None = None
        self._input_shape: tuple[int, ...] | None = None
        self._scaling: Scaling = (0.0,), (1.0,)
        self._data_name = ""
        self._decided = False  # shape and scaling, by training or a model file
        self._snapshot: Snapshot | None = None  # while there is no session
        self.resumed: RunState | None = None  # what the next fit goes on with, perhaps in the middle of an epoch

    def __enter__(self) -> Trainer:
        self._workers()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; what was learned stays here, and the next call that needs workers starts new ones."""
        if self._session is not None:
            self._snapshot = self._session.snapshot()
            self._session = None
        if self._crew is not None:
            self._crew.close()
            self._crew = None

    # Training.

    def fit(
        self,
        train: Any,
        *,
        epochs: int = 1,
        batch_size: int = 32,
        validation: Any = None,
        callbacks: Sequence[Callback] | None = None,
        checkpoint: str | Path | None = None,
        every: int | None = None,
        on_checkpoint_error: Literal["stop", "warn"] = "stop",
    ) -> History:
        """Train for some epochs over (images, labels) or a Dataset, each sample once per epoch; this call's history.

        Calling it again continues where the last call ended. By default one line per epoch is printed; callbacks=()
        prints nothing. A worker that is lost leaves no trace but its entry in `history.recoveries`.

        checkpoint: a folder for what `corenet.resume` goes on from, written after each epoch, and after steps whose
        number is a multiple of `every`. If that fails, on_checkpoint_error "stop" ends the run with FileError, the net
        as before an epoch that is not complete; "warn" goes on with a RuntimeWarning. What was written before stays as
        it was. A resumed run needs the same validation, too, where a `Plateau` or the best checkpoint go by it.

        Raises DataError, ShapeError or ConfigError before any work, TrainingError if the loss, a gradient or a
        parameter is not finite (see `nonfinite`), WorkerError if no worker is left.
        """
        epochs, batch_size = integer("epochs", epochs), integer("batch_size", batch_size)
        callbacks = [PrintEpochs()] if callbacks is None else callbacks
        if not isinstance(callbacks, Sequence) or not all(isinstance(callback, Callback) for callback in callbacks):
            raise ConfigError("callbacks", expected="a list of corenet.train.Callback objects", got=repr(callbacks))
        every = None if every is None else integer("every", every)
        one_of("on_checkpoint_error", on_checkpoint_error, ("stop", "warn"))
        data, targets = self._labelled(train)
        held_out = None if validation is None else labelled(self.net, self.loss, validation, data.sample_shape)[0]
        check_some_count(self.loss, data, targets)
        of_one = make_plan(self.net, data.sample_shape, 1, loss=self.loss)
        self.optimizer.common.check_groups([entry.name for entry in of_one.layout.entries if entry.part != "statistic"])
        automatic = choose_chunk(of_one, batch_size)
        chunk = automatic if self.chunk == "auto" else min(self.chunk, batch_size)
        resumed = self.resumed
        if resumed is not None:
            check_same_run(resumed, data, targets, batch_size)
        saving = None
        if checkpoint is not None:
            folder, what = CheckpointFolder(checkpoint), fingerprint(data, targets)
            saving = Saving(partial(self._checkpoint, folder, what, batch_size, chunk), every, on_checkpoint_error)
        self._adopt(data, decides=True)
        session = self._open()
        begin = perf_counter()
        batch = min(batch_size, len(data))  # no memory for more samples than there are
        plan = session.prepare_training(data.x.dtype, chunk, batch, self.strategy, self.balance)
        if held_out is not None:
            session.prepare_prediction(held_out.x.dtype)
        info = RunInfo(
            data=data.name,
            samples=len(data),
            epochs=epochs,
            batch_size=batch_size,
            chunk=chunk,
            workers=self.layout.workers,
            threads=self.layout.threads,
            layout=self.layout.reason,
            kernels=session.crew.backend_reason,
            parameters=plan.layout.parameter_count(),
            precision=self.precision,
        )
        for callback in callbacks:
            callback.on_start(info)

        def compiled(done: int, total: int) -> None:
            for callback in callbacks:
                callback.on_compile(done, total)

        last = self.epochs_done + epochs
        history = self.history = History(epochs=[] if resumed is None else list(resumed.records))
        session.compile(compiled)
        history.workers = [WorkerRecord(rank, cpus) for rank, cpus in enumerate(self.layout.cpus)]
        history.seconds_compile = perf_counter() - begin
        session.share_data(data, targets)
        run = Run(self, session, data, targets, held_out, batch_size, callbacks, saving, resumed)
        self.resumed = None
        while self.epochs_done < last:
            run.epoch(last)
        for callback in callbacks:
            callback.on_end(history)
        return history

    # Using the net.

    def predict(self, x: Any) -> np.ndarray:
        """What the net says of images (n, h, w), (n, h, w, c) or a Dataset: class probabilities (n, …, classes)
        float32, or values, as the loss has it.
        """
        data = as_dataset(x)
        check_images(self.net, self.loss, data, self._decided_shape)
        self._adopt(data)
        return self.loss.predictions(self._open().outputs(data))

    def evaluate(self, data: Any) -> dict[str, float]:
        """Mean loss, and accuracy where the loss has one, on (images, labels) or a Dataset: {"loss": …, …}."""
        dataset, targets = self._labelled(data)
        self._adopt(dataset)
        return self.loss.scores(self._open().outputs(dataset), targets)

    # The model.

    def parameters(self) -> dict[str, np.ndarray]:
        """Copies of all parameters and running statistics by name, such as "0.weight"."""
        return {name: array.copy() for name, array in self._layout().arrays(self._current_state()).items()}

    def params_sha256(self) -> str:
        """Hash of all parameters, flat in the order of the net, as little-endian float32."""
        return self._layout().sha256(self._current_state())

    def save(self, path: str | Path) -> None:
        """Write a model file, in one step. Raises FileError.

        It keeps the net, with the algorithms that its convolutions took; its parameters and running statistics
        (averaged weights, where the optimizer keeps them, in place of the latest); the images' shape and scaling, and
        the classes' names; loss, optimizer, chunk and seed as they were set, with the state of a `Plateau`. It is no
        checkpoint: see `load` for what begins anew, and `fit` for checkpoints.
        """
        tensors = self.parameters()
        save_model(path, self._info(), tensors)

    def restore(self, info: ModelInfo, tensors: dict[str, np.ndarray]) -> None:
        """Take over a saved model of the same net. Raises ShapeError where a parameter does not fit."""
        self._adopt_saved(info)
        self._snapshot = Snapshot(state_of(self._layout(), tensors, "the model file"))

    def resume(self, info: ModelInfo, progress: RunState, tensors: dict[str, np.ndarray]) -> None:
        """Take over a checkpoint of the same net and optimizer. Raises ShapeError where an array does not fit."""
        self._adopt_saved(info)
        averaged = self.optimizer.common.ema is not None
        self._snapshot = unpack(self._layout(), tensors, self.optimizer.slots, averaged, progress.step)
        self.epochs_done, self.records, self.resumed = progress.epochs_done, list(progress.records), progress

    def _checkpoint(
        self, folder: CheckpointFolder, data: dict[str, Any], batch_size: int, chunk: int, begun: Begun
    ) -> None:
        assert self._session is not None
        snapshot, records = self._session.snapshot(), self.records
        settings = {name: getattr(self, name) for name in RESUMED_SETTINGS}
        progress = RunState(self.epochs_done, snapshot.step, begun, batch_size, data, settings, records)
        best = begun.steps == 0 and is_best(records)
        folder.save(replace(self._info(), chunk=chunk), progress, pack(self._layout(), snapshot), best)

    def _info(self) -> ModelInfo:
        assert self._input_shape is not None
        return ModelInfo(
            net=describe(self.net, self._plan()),
            input_shape=self._input_shape,
            mean=self._scaling[0],
            std=self._scaling[1],
            classes=self.classes,
            loss=describe_loss(self.loss),
            optimizer=optim.describe(self.optimizer),
            chunk=self.chunk,
            seed=self.seed,
            data=self._data_name,
        )

    # Inside.

    def _adopt_saved(self, info: ModelInfo) -> None:
        self._input_shape, self._scaling = tuple(info.input_shape), (tuple(info.mean), tuple(info.std))
        self.classes, self._data_name, self._decided = tuple(info.classes), info.data, True

    @property
    def _decided_shape(self) -> tuple[int, ...] | None:
        return self._input_shape if self._decided else None

    def _labelled(self, data: Any) -> tuple[Dataset, np.ndarray]:
        return labelled(self.net, self.loss, data, self._decided_shape)

    def _adopt(self, data: Dataset, decides: bool = False) -> None:
        """The first data set that is trained on decides the input's shape and scaling, and names the classes."""
        if self._decided:
            return
        input_shape, scaling = data.sample_shape, (data.mean, data.std)
        if self._input_shape is not None and (input_shape, scaling) != (self._input_shape, self._scaling):
            self.close()  # the workers are prepared for others
            self._snapshot = None
        self._input_shape, self._scaling = input_shape, scaling
        self.classes, self._data_name = data.classes, data.name
        self._decided = decides

    def _workers(self) -> Crew:
        if self._crew is not None and self._crew.closed:  # lost in an earlier call
            self.close()
        if self._crew is None:
            self._crew = Crew(self.layout, self.kernels, self.max_restarts, self.worker_timeout)
        return self._crew

    def _open(self) -> Session:
        crew = self._workers()
        if self._session is None:
            assert self._input_shape is not None
            crew.wait_started()
            model = self.net, self.loss, self.optimizer, self._input_shape, self._scaling
            self._session = Session(crew, *model, self._saved(), self.fuse, self.precision)
        return self._session

    def _current_state(self) -> np.ndarray:
        """What prediction uses."""
        if self._session is not None:
            return self._session.used_state
        saved = self._saved()
        return saved.state if saved.average is None else saved.average

    def _saved(self) -> Snapshot:
        if self._snapshot is None:
            self._layout()
            assert self._input_shape is not None
            self._snapshot = Snapshot(first_state(self.net, self.loss, self._input_shape, self.seed))
        return self._snapshot

    def _layout(self) -> Layout:
        return self._plan().layout

    def _plan(self) -> Plan:
        if self._input_shape is None:
            raise ConfigError("the net has no parameters yet: the first data set decides their sizes. Call fit first")
        return make_plan(self.net, self._input_shape, 1, loss=self.loss)
