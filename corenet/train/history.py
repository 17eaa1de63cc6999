"""What happened in training: a record for each epoch, and what each worker did."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from ..parallel.recovery import Recovery


@dataclass
class WorkerRecord:
    """One worker over a fit: its cores, the samples it computed, seconds of computing and of waiting for the others."""

    rank: int
    cores: tuple[int, ...]
    samples: int = 0
    compute: float = 0.0
    wait: float = 0.0


@dataclass
class History:
    """Records of a fit: `epochs` is a list of dicts with loss, accuracy, val_… and seconds; `recoveries` tell of
    workers that were lost; times are in seconds.
    """

    epochs: list[dict[str, Any]] = field(default_factory=list)
    workers: list[WorkerRecord] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)
    seconds_compile: float = 0.0
    seconds_train: float = 0.0

    def __getitem__(self, name: str) -> list[Any]:
        """A quantity over the epochs, such as history["loss"]."""
        return [record[name] for record in self.epochs]

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps(asdict(self), indent=1)
