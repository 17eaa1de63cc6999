"""What a caller may watch while a net is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..parallel.recovery import Recovery


@dataclass(frozen=True)
class RunInfo:
    """What is known before the first step."""

    data: str
    samples: int
    epochs: int
    batch_size: int
    chunk: int
    workers: int
    threads: int
    layout: str  # the cores chosen, and why
    kernels: str  # which kernels run, and why
    parameters: int
    precision: str = "float32"  # of the operands of matrix products


@dataclass(frozen=True)
class Progress:
    """How far the current epoch is; the loss is the mean so far."""

    epoch: int
    step: int
    steps: int
    samples: int
    loss: float
    images_per_second: float
    seconds: float  # since the epoch began, or was taken up again


class Callback:
    """Base of callbacks; override what is of interest."""

    def on_start(self, info: RunInfo) -> None:
        """The workers are there."""

    def on_compile(self, done: int, total: int) -> None:
        """Some kernels are compiled or loaded; done == total: all are."""

    def on_progress(self, progress: Progress) -> None:
        """A few times a second during an epoch."""

    def on_recovery(self, recovery: Recovery) -> None:
        """A worker was lost, and the run goes on."""

    def on_epoch(self, record: dict[str, Any], epochs: int) -> None:
        """An epoch is over; `record` is its entry in the history, `epochs` the number of this call's last epoch.

        Epochs are numbered over all calls of `fit`: after one of 5 epochs, one of 3 tells 6, 7 and 8, of 8.
        """

    def on_end(self, history: Any) -> None:
        """Training is over."""


class PrintEpochs(Callback):
    """A line for data and layout and one for each epoch, on standard output."""

    def on_start(self, info: RunInfo) -> None:
        kernels = info.kernels if info.precision == "float32" else f"{info.kernels}, {info.precision}"
        print(f"{info.data}: {info.samples:,} images; {info.layout}; {kernels}", flush=True)

    def on_recovery(self, recovery: Recovery) -> None:
        print(recovery, flush=True)

    def on_epoch(self, record: dict[str, Any], epochs: int) -> None:
        print(epoch_line(record, epochs), flush=True)


def epoch_line(record: dict[str, Any], epochs: int) -> str:
    """An epoch's record in one line."""
    line = f"epoch {record['epoch']}/{epochs}"
    for title, prefix in (("", ""), ("validation ", "val_")):
        if prefix + "loss" in record:
            line += f"  {title}loss {record[prefix + 'loss']:.4f}"
        if prefix + "accuracy" in record:
            line += f"  accuracy {record[prefix + 'accuracy']:.2%}"
    return line + f"  {record['images_per_second']:,.0f} images/s"
