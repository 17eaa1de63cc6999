"""A training on the console: what runs where, the compile phase, a line per epoch, who computed and who waited.

On a terminal one bar shows the phase that is under way and gives way to one line when the phase is over. Anywhere else,
and on a terminal that cannot move its cursor, there are only the lines, without control characters. The cursor is never
hidden, so there is nothing to restore if the process is killed.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from ..parallel.recovery import Recovery
from ..parallel.topology import usable_cpus
from ..train import Callback, History
from ..train.callback import Progress as StepProgress
from ..train.callback import RunInfo, epoch_line
from .machine import cpu_model

REDRAWS = 4  # per second; the workers need the cores
LOG_WIDTH = 120  # columns of a table that goes to a file


class _Console(Console):
    """Rich's console, but it leaves the cursor as it is, and what a closed pipe means to its caller."""

    def show_cursor(self, show: bool = True) -> bool:
        return False

    def on_broken_pipe(self) -> None:
        raise  # again: the BrokenPipeError that Rich is handling


def make_console(file: TextIO | None) -> Console:
    """A console for a stream: colours and bars on a terminal, plain text elsewhere, whatever the environment says."""
    terminal = file is not None and file.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    return _Console(
        file=file,
        force_terminal=terminal,
        force_jupyter=False,
        width=None if terminal else LOG_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )


class ConsoleReport(Callback):
    """Reports a fit on a stream; use it in a `with` block, which takes the bar away however the fit ends."""

    def __init__(self, file: TextIO | None, model: str):
        self.console = make_console(file)
        self.model = model
        self._info: RunInfo | None = None
        self._bar: Progress | None = None
        self._begin = 0.0
        self._first_epoch = 0

    def __enter__(self) -> ConsoleReport:
        return self

    def __exit__(self, *exception: object) -> None:
        self._hide()

    # What the trainer tells.

    def on_start(self, info: RunInfo) -> None:
        self._info, self._begin, self._first_epoch = info, monotonic(), 0
        usable = len(usable_cpus())
        self.field("machine", f"{cpu_model()}, {usable} usable core{'' if usable == 1 else 's'}")
        bf16 = ", matrix products in bfloat16" if info.precision == "bf16" else ""
        self.field("kernels", info.kernels + bf16)
        self.field("workers", info.layout)
        self.field("data", f"{info.data}, {info.samples:,} images to train on")
        self.field("model", f"{self.model}, {info.parameters:,} parameters")
        chunks = "" if info.chunk == info.batch_size else f" in chunks of {info.chunk}"
        self.field("batch", f"{info.batch_size}{chunks}, {info.epochs} epoch{'' if info.epochs == 1 else 's'}")
        self._show_compiling(0, None)

    def on_compile(self, done: int, total: int) -> None:
        self._show_compiling(done, total)

    def _show_compiling(self, done: int, total: int | None) -> None:
        count = f"{done}/{total}" if total else ""
        text = "compiling kernels {task.fields[count]}"
        self._show(text, "{task.elapsed:.0f} s", completed=done, total=total, count=count)

    def _in_epoch(self, epoch: int, seconds: float) -> None:
        """Note that an epoch began some seconds ago; the first one ends the compile phase."""
        if not self._first_epoch:
            self._first_epoch = epoch
            self._hide()
            self.line(f"kernels ready in {monotonic() - self._begin - seconds:.1f} s", style="dim")

    def on_progress(self, progress: StepProgress) -> None:
        assert self._info is not None
        rate = progress.images_per_second
        self._in_epoch(progress.epoch, progress.seconds)
        last = self._first_epoch + self._info.epochs - 1
        left = (last - progress.epoch + 1) * self._info.samples - progress.samples
        self._show(
            f"epoch {progress.epoch}/{last}",
            "{task.fields[rate]} images/s  loss {task.fields[loss]}  ETA {task.fields[eta]}",
            completed=progress.step,
            total=progress.steps,
            rate=f"{rate:,.0f}",
            loss=f"{progress.loss:.4f}",
            eta=minutes(left / rate),
        )

    def on_recovery(self, recovery: Recovery) -> None:
        self.line(str(recovery))

    def on_epoch(self, record: dict[str, Any], epochs: int) -> None:
        self._in_epoch(record["epoch"], record["seconds"])  # it may have been too short for progress
        self._hide()
        self.line(epoch_line(record, epochs))

    def on_end(self, history: History) -> None:
        self._hide()
        self.line("")
        self.console.print(worker_table(history))

    # Lines.

    def line(self, text: str, style: str | None = None) -> None:
        """Print one line, however long."""
        self.console.print(text, style=style, soft_wrap=True)

    def field(self, name: str, value: str, style: str | None = None) -> None:
        """Print a name and what there is to say about it."""
        self.line(f"{name:9}{value}", style)

    # The bar.

    def _show(self, before: str, after: str, *, completed: int, total: int | None, **fields: Any) -> None:
        """Show a bar between two texts, or move the one that is there."""
        if not self.console.is_terminal:
            return
        if self._bar is None:
            columns = TextColumn(before, markup=False), BarColumn(), TextColumn(after, markup=False)
            self._bar = Progress(*columns, console=self.console, transient=True, refresh_per_second=REDRAWS)
            self._bar.add_task("", total=total, completed=completed, **fields)
            self._bar.start()
        else:
            self._bar.update(self._bar.task_ids[0], completed=completed, total=total, **fields)

    def _hide(self) -> None:
        if self._bar is not None:
            bar, self._bar = self._bar, None
            bar.stop()


def minutes(seconds: float) -> str:
    """A time as minutes and seconds, such as 2:05."""
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02}"


def worker_table(history: History) -> Table:
    """Who computed what share of the samples, and who waited for whom."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("worker", "core", "samples", "share", "computing", "waiting", "waiting %"):
        table.add_column(name, justify="right")
    total = sum(worker.samples for worker in history.workers) or 1
    for worker in history.workers:
        whole = worker.compute + worker.wait or 1.0
        table.add_row(
            str(worker.rank),
            ", ".join(map(str, worker.cores)),
            f"{worker.samples:,}",
            f"{worker.samples / total:.1%}",
            f"{worker.compute:.2f} s",
            f"{worker.wait:.2f} s",
            f"{worker.wait / whole:.1%}",
        )
    return table
