"""The options of corenet train, checked, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .. import models, optim
from ..errors import ConfigError
from ..kernels import backend
from ..train import Trainer
from ..train.settings import integer
from . import options

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

    @property
    def rate(self) -> float:
        """The learning rate of the first step; it then falls to 0 along half a cosine."""
        return RATES[self.optimizer] if self.lr is None else self.lr

    def trainer(self, model: str) -> Trainer:
        """A trainer of the model of that name. Raises ConfigError if it does not give one class for each image."""
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
            workers=options.count_or_auto("--workers", self.workers),
            threads=self.threads,
            chunk=options.count_or_auto("--chunk", self.chunk),
            seed=self.seed,
            share_cores=self.share_cores,
            kernels=options.kernels(self.kernels),
            precision=self.precision,
        )
