"""corenet bench kernels | step | compare: from options to a suite, and from its lines to a table and JSON."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..bench import document, layers, steps
from ..bench import kernels as layer_suite
from ..bench import peers as other_libraries
from ..bench.peaks import Peaks, at_work, measure_peaks
from ..kernels import backend
from ..parallel.topology import usable_cpus
from ..report.bench import Steps, print_comparison, print_result
from . import options
from .output import print_json

QUICK_NETS = ("lenet5", "keras_mnist")
ROUNDS, QUICK_ROUNDS, PEAK_ROUNDS = 5, 3, 15


def kernels(only: list[str], *, batch: int, peers: bool, quick: bool, rounds: int | None, json: str | None) -> None:
    """Measure layers."""
    suite = Suite("kernels", only, peers, quick, rounds, json, batch=options.count("--batch", batch))
    how = layer_suite.How(batch, suite.rounds, 0.01 if quick else 0.05)
    cases = layers.choose(layers.all_cases(), only)
    if quick and not only:
        cases = [case for case in cases if case.name in layers.QUICK]
    core = suite.cores[0]
    with suite, contextlib.ExitStack() as stack:
        peaks = suite.measure_peaks(len(cases))
        peer = suite.starter.start([core]) if suite.starter else None
        if peer is not None:
            stack.callback(peer.close)
        stack.enter_context(at_work(core))
        for case in cases:
            suite.add(case.name, layer_suite.measure(case, how, suite.backend, peaks, peer))
    suite.show()


def step(
    only: list[str], *, batches: list[int] | None, peers: bool, quick: bool, rounds: int | None, json: str | None
) -> None:
    """Measure nets."""
    sizes = list(dict.fromkeys(batches or ((128,) if quick else (128, 32))))
    for size in sizes:
        options.count("--batch", size)
    suite = Suite("step", only, peers, quick, rounds, json, batches=sizes)
    how = steps.How(suite.rounds, 0.3 if quick else 1.0)
    nets = [net for net in steps.choose(only) if only or not quick or net in QUICK_NETS]
    with suite:
        peaks = suite.measure_peaks(len(nets) * len(sizes))
        for net in nets:
            for size in sizes:
                name = f"{net}, batch {size}"
                suite.add(name, steps.measure(net, size, how, suite.cores, peaks, suite.starter))
    suite.show()


def compare(old: Path, new: Path, *, json: bool) -> None:
    """Compare two results."""
    comparison = document.compare(document.read(old), document.read(new))
    if json:
        print_json(comparison)
    else:
        print_comparison(comparison, sys.stdout)


class Suite:
    """What all suites share: options, peaks before and output after; in a `with` block it says where it has got to.

    Raises before any work for options that are not possible.
    """

    def __init__(
        self, name: str, only: list[str], peers: bool, quick: bool, rounds: int | None, json: str | None, **more: Any
    ):
        self.name, self.json = name, json
        default = QUICK_ROUNDS if quick else ROUNDS
        self.rounds = options.count("--rounds", default if rounds is None else rounds)
        self.settings = {"only": only, "peers": peers, "quick": quick, "rounds": self.rounds, **more}
        if json is not None and json != "-":
            document.check_writable(Path(json))
        self.starter = other_libraries.find() if peers else None
        self.backend = backend.select("numba")
        self.cores = usable_cpus()
        self.peaks: Peaks | None = None
        self.lines: list[dict[str, Any]] = []
        self._progress = Steps(sys.stderr)
        self._done = self._total = 0

    def __enter__(self) -> Suite:
        self._progress.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._progress.__exit__(*exception)

    def measure_peaks(self, measurements: int) -> Peaks:
        """The first of the suite's measurements; so many come after it."""
        self._total = 1 + measurements
        self._next("peaks")
        self.peaks = measure_peaks(self.backend, self.cores, PEAK_ROUNDS)
        return self.peaks

    def add(self, name: str, lines: Iterable[dict[str, Any]]) -> None:
        """Measure some lines."""
        self._next(name)
        self.lines.extend(lines)

    def _next(self, name: str) -> None:
        self._progress.at(name, self._done, self._total)
        self._done += 1

    def show(self) -> None:
        """Print the result, and write it where that was asked."""
        assert self.peaks is not None
        versions = {} if self.starter is None else {"torch": self.starter.VERSION}
        result = document.make(
            self.name, self.lines, settings=self.settings, backend=self.backend, peaks=self.peaks, versions=versions
        )
        if self.json == "-":
            print_json(result)
            return
        print_result(result, sys.stdout)
        if self.json is not None:
            document.write(Path(self.json), result)
