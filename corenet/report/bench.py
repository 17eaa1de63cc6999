"""The results of `corenet bench` as tables, and where it has got to."""

from __future__ import annotations

from types import TracebackType
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from .console import make_console

WIDTH = 200  # columns of a table that goes to a file: a line of it is never cut

HEADS = {
    "kernels": ("layer", "pass", "algorithm"),
    "step": ("net", "batch", "workers", "kind"),
}


class Steps:
    """Says on a stream which measurement is under way: on a terminal as a bar, elsewhere a line each."""

    def __init__(self, file: TextIO | None):
        self.console = make_console(file)
        columns = TextColumn("{task.fields[name]}", markup=False), BarColumn()
        terminal = self.console.is_terminal
        # Drawn when something new begins, and at no other time: what is measured needs the cores.
        self._bar = Progress(*columns, console=self.console, transient=True, disable=not terminal, auto_refresh=False)
        self._task = self._bar.add_task("", total=1, name="")

    def __enter__(self) -> Steps:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def at(self, name: str, done: int, total: int) -> None:
        """Say what begins now, after `done` of `total` measurements."""
        self._bar.update(self._task, name=name, completed=done, total=total, refresh=True)
        if not self.console.is_terminal:
            self.console.print(f"{done + 1}/{total} {name}", soft_wrap=True)


def print_result(document: dict[str, Any], file: TextIO | None) -> None:
    """Print a suite's result."""
    console = _console(file)
    libraries = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    for name, value in (
        ("machine", f"{document['machine']['cpu']}, {_cores(len(document['machine']['cores']))}"),
        ("versions", libraries),
        ("kernels", document["kernels"]),
        ("peaks", _peaks(document["peaks"])),
    ):
        console.print(f"{name:10}{value}", soft_wrap=True)
    console.print()
    console.print(table(document))


def print_comparison(comparison: dict[str, Any], file: TextIO | None) -> None:
    """Print what `compare` has found."""
    console = _console(file)
    machines = comparison["machines"]
    if machines["old"] != machines["new"]:
        console.print(f"different machines: old {machines['old']}, new {machines['new']}\n", soft_wrap=True)
    result = _table("line", numbers=("old", "new", "unit", "new/old", ""))
    for line in comparison["lines"]:
        clear = "" if line["clear"] else "within the spread"
        figures = number(line["old"]), number(line["new"]), line["unit"]
        result.add_row(line["name"], *figures, f"{line['ratio']:.2f}", clear)
    console.print(result)
    for which, names in comparison["only"].items():
        if names:
            console.print(f"\nonly in {which}: {'; '.join(names)}", soft_wrap=True)


def table(document: dict[str, Any]) -> Table:
    """A row for each measurement: median, lowest and highest, share of the peak, and the peer's beside it."""
    heads, lines = HEADS[document["suite"]], document["lines"]
    kernels, peers = document["suite"] == "kernels", any("peer" in line for line in lines)
    numbers = ["GFLOP/s" if kernels else "images/s", "min … max"]
    numbers += ["% of peak", "MB", "roofline"] if kernels else ["GFLOP/s", "% of peak", "% outside"]
    result = _table(*heads, numbers=(*numbers, *(("PyTorch", "way", "ratio", "min … max") if peers else ())))
    for line in lines:
        row = [str(line[head]) for head in heads]
        row += [number(line["median"]), f"{number(line['low'])} … {number(line['high'])}"]
        percent = f"{line['percent_of_peak']:.0f}"
        if kernels:
            row += [percent, number(line["bytes"] / 1e6), number(line["roofline"])]
        else:
            outside = line.get("percent_outside")
            row += [number(line["gflops"]), percent, "" if outside is None else f"{outside:.1f}"]
        if peer := line.get("peer"):
            ratio = peer["ratio"]
            spread = f"{ratio['low']:.2f} … {ratio['high']:.2f}"
            row += [number(peer["median"]), peer["way"], f"{ratio['median']:.2f}", spread]
        result.add_row(*row)
    return result


def number(value: float) -> str:
    """Three digits or more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _console(file: TextIO | None) -> Console:
    console = make_console(file)
    if not console.is_terminal:
        console.width = WIDTH
    return console


def _table(*texts: str, numbers: tuple[str, ...]) -> Table:
    result = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in texts:
        result.add_column(name)
    for name in numbers:
        result.add_column(name, justify="right")
    return result


def _peaks(peaks: dict[str, Any]) -> str:
    parts = []
    for cores, gflops in peaks["gflops"].items():
        memory = peaks["gbytes_per_second"][cores]
        on = "1 core" if cores == "1" else f"{cores} cores at once"
        parts.append(f"{number(gflops['high'])} GFLOP/s and {number(memory['high'])} GB/s from memory on {on}")
    return "; ".join(parts)


def _cores(count: int) -> str:
    return f"{count} usable core{'' if count == 1 else 's'}"
