"""corenet train: read the data while the workers start, train, keep the run.

Nothing slow may come before the workers are started: they import Numba while this process reads the data and imports
what it needs to report.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__, models
from ..errors import ConfigError, MissingExtraError
from ..train import Callback, History, Trainer
from ..train.callback import Progress, RunInfo
from ..train.checkpoint import CheckpointFolder
from ..train.files import write_atomically
from .options import MODEL_FILE
from .output import print_json, to_json
from .run_folder import CURVES_FILE, HISTORY_FILE, RunFolder, default_folder, point_latest
from .settings import SETTINGS_FILE, Settings
from .source import Source, check_images
from .started import seconds_since_start

if TYPE_CHECKING:
    from ..report.console import ConsoleReport


def train(settings: Settings) -> None:
    """Train a model and leave a run folder."""
    source = Source(settings.dataset)
    model = models.find(settings.model) if settings.model else source.default_model()
    trainer = settings.trainer(model)
    out = settings.out or default_folder(source.slug, model)
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder(out, overwrite=settings.overwrite))
        if settings.checkpoint is not None:
            _claim(settings.checkpoint, settings)
        stack.enter_context(trainer)  # the workers start
        train_set, test_set = source.read()
        fix = "Choose another --model, or leave it out"
        check_images(source, train_set, models.INPUT_SHAPES[model], f"the model {model}", fix)

        from ..report.console import ConsoleReport

        report = stack.enter_context(ConsoleReport(sys.stderr if settings.json else sys.stdout, model))
        watch = _Watch()
        if settings.checkpoint is not None:
            report.field("keeps", f"checkpoints in {settings.checkpoint}, for corenet train --resume")
        epochs = settings.epochs - trainer.epochs_done
        history = trainer.fit(
            train_set,
            epochs=epochs,
            batch_size=settings.batch_size,
            validation=test_set,
            callbacks=[watch, report],
            checkpoint=settings.checkpoint,
            every=settings.every,
        )
        on_train_set = trainer.evaluate(train_set)
        last, new = history.epochs[-1], history.epochs[-epochs:]  # the first may have begun before it was resumed
        result = {
            "test_accuracy": last["val_accuracy"],
            "test_loss": last["val_loss"],
            "train_accuracy": on_train_set["accuracy"],
            "train_loss": on_train_set["loss"],
            "images_per_second": sum(r["images_per_second"] * r["seconds"] for r in new) / history.seconds_train,
            "seconds_total": 0.0,  # below
            "seconds_to_first_step": watch.seconds_to_first_step,
            "seconds_compile": history.seconds_compile,
            "seconds_train": history.seconds_train,
            "dataset": source.name,
            "dataset_name": train_set.name,
            "model": model,
            "parameters": watch.info.parameters,
            "epochs": settings.epochs,
            "batch_size": settings.batch_size,
            "chunk": watch.info.chunk,
            "optimizer": settings.optimizer,
            "learning_rate": settings.rate,
            "seed": settings.seed,
            "workers": watch.info.workers,
            "threads": watch.info.threads,
            "kernels": watch.info.kernels,
            "precision": watch.info.precision,
            "params_sha256": trainer.params_sha256(),
            "out": str(out),
            "corenet": __version__,
        }
        _save(settings, trainer, history, result, folder, report)
        result["seconds_total"] = seconds_since_start()
        _tell(result, report)
    if settings.json:
        print_json(result)


def _claim(checkpoints: Path, settings: Settings) -> None:
    """Make a folder the run's own. Raises ConfigError if it is another run's."""
    if settings.resume is None and not settings.overwrite and (checkpoints / SETTINGS_FILE).exists():
        fix = f"Go on with it by --resume {checkpoints}, choose another, or replace it with --overwrite"
        raise ConfigError(f"--checkpoint {checkpoints}", expected="a new folder", got="that of another run", fix=fix)
    if settings.resume is None:
        CheckpointFolder(checkpoints).clear()
    settings.write(checkpoints)


class _Watch(Callback):
    """Notes what the result needs: the layout, and when the first step was seen to be done."""

    info: RunInfo
    seconds_to_first_step: float | None = None

    def on_start(self, info: RunInfo) -> None:
        self.info = info

    def on_progress(self, progress: Progress) -> None:
        self.seconds_to_first_step = self.seconds_to_first_step or seconds_since_start()

    def on_epoch(self, record: dict[str, Any], epochs: int) -> None:  # a first epoch may be too short for progress
        self.seconds_to_first_step = self.seconds_to_first_step or seconds_since_start()


def _save(
    settings: Settings,
    trainer: Trainer,
    history: History,
    result: dict[str, Any],
    folder: RunFolder,
    report: ConsoleReport,
) -> None:
    """Write model, history and, where possible, curves."""
    curves = _curves(history, result, report)
    trainer.save(folder.staging / MODEL_FILE)
    result["seconds_total"] = seconds_since_start()
    text = to_json({"run": result, **json.loads(history.to_json())}, indent=1)
    write_atomically(folder.staging / HISTORY_FILE, text.encode())
    if curves is not None:
        write_atomically(folder.staging / CURVES_FILE, curves)
    folder.publish()
    if settings.out is None:
        point_latest(folder.path)


def _curves(history: History, result: dict[str, Any], report: ConsoleReport) -> bytes | None:
    """The plot, or None and a line that says why: no plot is no reason to lose a model."""
    from ..report.plots import draw_curves

    title = f"{result['dataset_name']}, {result['model']}, {result['parameters']:,} parameters"
    try:
        return draw_curves(history, title, held_out="test")
    except MissingExtraError as error:
        reason = str(error)
    except Exception as error:  # Matplotlib has as many ways to be broken as installations
        reason = f"Matplotlib failed ({type(error).__name__}: {error})"
    report.line(f"no {CURVES_FILE}: {reason}")
    return None


def _tell(result: dict[str, Any], report: ConsoleReport) -> None:
    """The last lines: how good, how fast, where."""
    report.line("")
    report.field("test", f"accuracy {result['test_accuracy']:.2%}, loss {result['test_loss']:.4f}", "bold")
    report.field("training", f"accuracy {result['train_accuracy']:.2%}, loss {result['train_loss']:.4f}")
    first, compiling = result["seconds_to_first_step"], result["seconds_compile"]
    report.field(
        "time",
        f"{result['seconds_total']:.1f} s in all, {first:.1f} s to the first step (kernels {compiling:.1f} s), "
        f"{result['images_per_second']:,.0f} images/s",
    )
    report.field("saved", result["out"])
