"""Checkpoints: all that a run needs to go on to the very bits of one that was never interrupted.

    DIR/last.safetensors        written every so often, in one step
    DIR/previous.safetensors    the one before, should the last be damaged
    DIR/best.safetensors        of the epoch with the lowest validation loss (training loss, without validation)

A file holds the model's description, parameters, running statistics, the optimizer's numbers and averages by name, and
how far the run is: epochs, step, the sums of an epoch that has begun, the records of the others. Order, augmentation,
dropout and learning rates are functions of seed, epoch and step, so they need no state; nor do the workers, of whom
another number may go on. The data is not in it, but its checksum is.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..datasets import Dataset
from ..engine import Layout
from ..errors import ConfigError, FileError
from ..kernels.losses import METRICS
from .files import give_name, make_folder, remove_unfinished
from .model_file import ModelInfo, state_of
from .session import Begun, Snapshot
from .tensor_file import Arrays, read_arrays, write_arrays

VERSION = 1
RESUMED_SETTINGS = ("strategy", "balance", "kernels", "fuse", "precision", "nonfinite")  # of the Trainer
LAST, PREVIOUS, BEST = "last.safetensors", "previous.safetensors", "best.safetensors"


@dataclass(frozen=True)
class RunState:
    """How far a run is, and what must be the same when it goes on."""

    epochs_done: int
    step: int
    begun: Begun
    batch_size: int
    data: dict[str, Any]  # see `fingerprint`
    settings: dict[str, Any]  # of the Trainer, as far as they show in the bits
    records: list[dict[str, Any]]  # of the epochs that are done

    @classmethod
    def of(cls, values: dict[str, Any]) -> RunState:
        """From JSON. Raises ValueError, and what else damage may cause, for what it cannot be."""
        begun = Begun(**values["begun"])
        begun = replace(begun, totals=tuple(map(float, begun.totals)), skipped=tuple(map(int, begun.skipped)))
        progress = cls(**{**values, "begun": begun})
        numbers = progress.epochs_done, progress.step, begun.steps, progress.batch_size
        if not all(type(number) is int and 0 <= number < 2**63 for number in numbers) or progress.batch_size < 1:
            raise ValueError(f"a header with epochs, step, steps begun and batch size {numbers}")
        if begun.steps > progress.step or not all(0 <= step < begun.steps for step in begun.skipped):
            skipped = f"skipped {begun.skipped}"[:100]
            raise ValueError(f"a header with {begun.steps} steps begun of {progress.step}, {skipped}")
        if set(progress.settings) != set(RESUMED_SETTINGS):
            raise ValueError(f"a header with the settings {', '.join(progress.settings)[:200]}")
        if not all(isinstance(value, str | bool) for value in progress.settings.values()):
            raise ValueError(f"a header with the settings {progress.settings}"[:200])
        if not isinstance(progress.data, dict):
            raise ValueError("a header without the checksums of the data")
        records_fine = isinstance(progress.records, list) and all(isinstance(r, dict) for r in progress.records)
        if len(begun.totals) != METRICS or not records_fine:
            raise ValueError("a header without the sums and records of a run")
        return progress


class CheckpointFolder:
    """Where a run leaves its checkpoints. Raises ConfigError or FileError, before any work, where it cannot."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError("checkpoint", expected="a folder", got=f"{self.path}, which is none")
        make_folder(self.path)
        for name in (LAST, PREVIOUS, BEST):
            remove_unfinished(self.path / name)

    def clear(self) -> None:
        """Remove the checkpoints of an earlier run. Raises FileError."""
        try:
            for name in (LAST, PREVIOUS, BEST):
                (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise FileError(f"cannot clear {self.path}", got=error.strerror or str(error)) from error

    def save(self, info: ModelInfo, progress: RunState, arrays: Arrays, best: bool) -> None:
        """Write the last checkpoint. Raises FileError; those that were there are as they were."""
        last = self.path / LAST
        if last.exists():
            give_name(last, self.path / PREVIOUS)
        write_arrays(last, "checkpoint", VERSION, {"model": asdict(info), "progress": asdict(progress)}, arrays)
        if best:
            give_name(last, self.path / BEST)


def load_checkpoint(path: str | Path) -> tuple[Path, ModelInfo, RunState, Arrays]:
    """Read a checkpoint file, or the last one of a folder. Raises FileError, which names an older one that is sound."""
    path = Path(path)
    file = path / LAST if path.is_dir() else path
    try:
        return file, *_read(file, "Use a checkpoint that corenet wrote")
    except FileError:
        older = file.with_name(PREVIOUS)
        if file.name != LAST or not older.exists():
            raise
    try:
        _read(older, "")
    except FileError:
        fix = f"{older} is damaged, too: begin anew"
    else:
        fix = f"{older}, the one before, is sound: resume from that"
    return file, *_read(file, fix)


def _read(path: Path, fix: str) -> tuple[ModelInfo, RunState, Arrays]:
    def check(description: dict[str, Any]) -> tuple[ModelInfo, RunState]:
        return ModelInfo.of(description["model"]), RunState.of(description["progress"])

    (info, progress), arrays = read_arrays(path, "checkpoint", VERSION, check, fix)
    return info, progress, arrays


def pack(layout: Layout, snapshot: Snapshot) -> Arrays:
    """A snapshot as named arrays: "0.weight", "slot 0 of 0.weight", "average of 0.weight"."""
    arrays = dict(layout.arrays(snapshot.state))
    slots = () if snapshot.slots is None else snapshot.slots
    for number, slot in enumerate(slots):
        arrays |= {f"slot {number} of {name}": array for name, array in layout.arrays(slot).items()}
    if snapshot.average is not None:
        arrays |= {f"average of {name}": array for name, array in layout.arrays(snapshot.average).items()}
    return arrays


def unpack(layout: Layout, arrays: Arrays, slots: int, averaged: bool, step: int) -> Snapshot:
    """The snapshot of an optimizer with so many slots. Raises ShapeError or DataError where an array does not fit."""
    prefixes = ["", *(f"slot {number} of " for number in range(slots)), *(["average of "] if averaged else [])]
    vectors = []
    left = dict(arrays)
    for prefix in prefixes:
        names = [entry.name for entry in layout.entries if entry.size]
        part = {name: left.pop(prefix + name) for name in names if prefix + name in left}
        overflow = prefix.startswith("slot")  # squares of large gradients: infinite, and so the update is zero
        vectors.append(state_of(layout, part, f"{prefix}the checkpoint", overflow))
    if left:
        raise FileError("the checkpoint", expected="no more arrays", got=", ".join(sorted(left))[:200])
    average = vectors.pop() if averaged else None
    return Snapshot(vectors[0], np.array(vectors[1:]).reshape(slots, layout.size), step, average)


def fingerprint(data: Dataset, targets: np.ndarray) -> dict[str, Any]:
    """What tells a data set from another: sizes, types, checksums, and what is done to an image before it is used."""

    def of(array: np.ndarray) -> list[Any]:
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        return [list(array.shape), array.dtype.str, zlib.crc32(content)]

    return {"images": of(data.x), "targets": of(targets), "shift": data.shift, "flip": data.flip}


def check_same_run(resumed: RunState, data: Dataset, targets: np.ndarray, batch_size: int) -> None:
    """Raise ConfigError unless training on this data goes on where a checkpoint was made."""
    fix = "To train on other data, or otherwise, begin a new run from a model file: corenet.load"
    if batch_size != resumed.batch_size:
        what = "batch_size of a resumed run"
        raise ConfigError(what, expected=f"{resumed.batch_size}, as before", got=batch_size, fix=fix)
    now = fingerprint(data, targets)
    for name, expected in resumed.data.items():
        if now.get(name) != expected:
            what = f"{name} of the data of a resumed run"
            raise ConfigError(what, expected=f"{expected}, as before", got=now.get(name), fix=fix)
    steps = math.ceil(len(data) / batch_size)
    if resumed.begun.steps >= steps:
        what, expected = "the checkpoint", f"less than the {steps} steps of an epoch begun"
        raise FileError(what, expected=expected, got=resumed.begun.steps, fix="Use another copy")


def is_best(records: Sequence[dict[str, Any]]) -> bool:
    """Whether the last of some epochs is the best so far; one whose loss is not a number is not."""
    key = "val_loss" if "val_loss" in records[-1] else "loss"
    losses = [record.get(key, math.inf) for record in records]
    return not math.isnan(losses[-1]) and not any(loss <= losses[-1] for loss in losses[:-1])
