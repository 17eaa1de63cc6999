"""The options of corenet train, checked, and what they mean."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .. import models, optim
from ..errors import ConfigError, FileError
from ..kernels import backend
from ..train import Trainer, resume
from ..train.files import write_atomically
from ..train.settings import integer
from ..train.tensor_file import DAMAGE
from . import options

SETTINGS_FILE = "settings.json"  # beside the checkpoints
FREE = {"workers", "threads", "share_cores", "out", "overwrite", "resume", "json"}  # those a resumed run may change

RATES = {"adam": 3e-3, "sgd": 0.05}  # of the first step


@dataclass(frozen=True)
class Settings:
    """What the user asked for; None where corenet chooses."""

    dataset: str
    model: str | None
    epochs: int
    batch_size: int
    optimizer: str
    lr: float | None
    workers: str
    threads: int
    chunk: str
    seed: int
    kernels: str
    precision: str
    share_cores: bool
    out: Path | None
    overwrite: bool
    checkpoint: Path | None
    every: int | None
    resume: Path | None
    json: bool

    def __post_init__(self) -> None:
        options.count("--epochs", self.epochs)
        options.count("--batch-size", self.batch_size)
        options.count("--threads", self.threads)
        options.count_or_auto("--workers", self.workers)
        options.count_or_auto("--chunk", self.chunk)
        integer("--seed", self.seed, least=0, most=2**63 - 1)
        backend.check_precision(self.precision, self.kernels)
        if self.optimizer not in RATES:
            raise ConfigError("--optimizer", expected=" or ".join(RATES), got=repr(self.optimizer))
        if self.lr is not None:
            options.rate("--lr", self.lr)
        if self.every is not None:
            options.count("--every", self.every)
            if self.checkpoint is None and self.resume is None:
                raise ConfigError("--every", expected="a --checkpoint DIR with it", got="none")

    @property
    def rate(self) -> float:
        """The learning rate of the first step; it then falls to 0 along half a cosine."""
        return RATES[self.optimizer] if self.lr is None else self.lr

    def write(self, folder: Path) -> None:
        """Leave the settings with the run's checkpoints."""
        values = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        write_atomically(folder / SETTINGS_FILE, json.dumps(values, indent=1).encode())

    def resumed(self, given: set[str]) -> Settings:
        """The settings of the run that `resume` names, but for those given that say where and not what to compute."""
        assert self.resume is not None
        others = sorted(given - FREE)
        if others:
            got = ", ".join(name if name == "dataset" else f"--{name.replace('_', '-')}" for name in others)
            raise ConfigError("--resume", expected="no option that is part of the run", got=got, fix="Leave it out")
        folder = self.resume if self.resume.is_dir() else self.resume.parent
        path = folder / SETTINGS_FILE
        try:
            values = json.loads(path.read_text())
            out = None if values["out"] is None else Path(values["out"])
            saved = Settings(**{**values, "out": out, "checkpoint": folder, "resume": self.resume, "json": False})
        except FileNotFoundError:
            fix = "Give the --checkpoint folder of an earlier corenet train"
            raise FileError(f"--resume {self.resume}", expected=f"{SETTINGS_FILE} there", got="none", fix=fix) from None
        except OSError as error:
            raise FileError(f"cannot read {path}", got=error.strerror or str(error)) from error
        except DAMAGE as error:
            raise FileError(f"{path} is damaged", got=f"{type(error).__name__}: {error}"[:300]) from error
        return replace(saved, **{name: getattr(self, name) for name in given - {"resume"}})

    def trainer(self, model: str) -> Trainer:
        """A trainer of the model of that name, or of the run that is resumed.

        Raises ConfigError if the model does not give one class for each image, or if no epoch is left.
        """
        where: dict[str, Any] = {
            "workers": options.count_or_auto("--workers", self.workers),
            "threads": self.threads,
            "share_cores": self.share_cores,
        }
        if self.resume is not None:
            trainer = resume(self.resume, **where)
            if trainer.epochs_done >= self.epochs:
                what, got = f"--resume {self.resume}", f"all {self.epochs} epochs done"
                raise ConfigError(what, expected="a run with epochs left", got=got)
            return trainer
        if not models.classifies(model):
            got, fix = f"{model}, which gives one for each pixel", "Train it in Python"
            raise ConfigError("--model", expected="a net that gives one class for each image", got=got, fix=fix)
        schedule = optim.Cosine(self.rate, self.epochs)
        optimizer: optim.Optimizer = optim.Adam(schedule)
        if self.optimizer == "sgd":
            optimizer = optim.SGD(schedule, momentum=0.9, nesterov=True)
        return Trainer(
            models.get(model),
            optimizer,
            **where,
            chunk=options.count_or_auto("--chunk", self.chunk),
            seed=self.seed,
            kernels=options.kernels(self.kernels),
            precision=self.precision,
        )
