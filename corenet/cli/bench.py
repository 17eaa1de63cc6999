"""corenet bench kernels | step | compare: from options to a suite, and from its lines to a table and JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..bench import document, layers, peers, steps
from ..bench import kernels as layer_suite
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
    suite = _Suite("kernels", only, peers, quick, rounds, json)
    options.count("--batch", batch)
    how = layer_suite.How(batch, suite.rounds, 0.01 if quick else 0.05)
    cases = layers.choose(layers.all_cases(), only)
    if quick and not only:
        cases = [case for case in cases if case.name in layers.QUICK]
    core = suite.cores[0]

    def lines(peaks: Peaks) -> Iterator[dict[str, Any]]:
        peer = suite.starter.start([core]) if suite.starter else None
        try:
            with at_work(core):
                yield from layer_suite.run(cases, how, suite.backend, peaks, peer)
        finally:
            if peer is not None:
                peer.close()

    suite.run(lines, [case.name for case in cases for _ in layer_suite.PASSES], {"batch": batch})


def step(
    only: list[str], *, batches: list[int] | None, peers: bool, quick: bool, rounds: int | None, json: str | None
) -> None:
    """Measure nets."""
    suite = _Suite("step", only, peers, quick, rounds, json)
    sizes = tuple(options.count("--batch", size) for size in dict.fromkeys(batches or ((128,) if quick else (128, 32))))
    how = steps.How(sizes, suite.rounds, 0.3 if quick else 1.0)
    nets = [net for net in steps.choose(only) if only or not quick or net in QUICK_NETS]
    each = len({1, len(suite.cores)}) * len(steps.KINDS)
    names = [f"{net}, batch {size}" for net in nets for size in sizes for _ in range(each)]
    settings = {"batches": list(sizes)}
    suite.run(lambda peaks: steps.run(nets, how, suite.cores, peaks, suite.starter), names, settings)


def compare(old: Path, new: Path, *, json: bool) -> None:
    """Compare two results."""
    comparison = document.compare(document.read(old), document.read(new))
    if json:
        print_json(comparison)
    else:
        print_comparison(comparison, sys.stdout)


class _Suite:
    """What all suites share: their options, the peaks before and the output after. Raises before any work."""

    def __init__(self, name: str, only: list[str], use_peers: bool, quick: bool, rounds: int | None, json: str | None):
        self.name, self.json = name, json
        self.rounds = options.count("--rounds", rounds or (0 if rounds == 0 else QUICK_ROUNDS if quick else ROUNDS))
        self.settings = {"only": only, "peers": use_peers, "quick": quick, "rounds": self.rounds}
        if json is not None and json != "-":
            document.check_writable(Path(json))
        self.starter = peers.find() if use_peers else None
        self.backend = backend.select("numba")
        self.cores = usable_cpus()

    def run(self, lines: Any, names: list[str], settings: dict[str, Any]) -> None:
        """Measure the peaks, then the lines, whose names are known before; show and write the result."""
        found = []
        with Steps(sys.stderr) as progress:
            progress.at("peaks", 0, len(names) + 1)
            peaks = measure_peaks(self.backend, self.cores, PEAK_ROUNDS)
            measured = iter(lines(peaks))
            for number, name in enumerate(names, 1):
                if number == 1 or name != names[number - 2]:
                    progress.at(name, number, len(names) + 1)
                found.append(next(measured))
            assert next(measured, None) is None
        versions = {} if self.starter is None else {"torch": self.starter.VERSION}
        settings = {**self.settings, **settings}
        more: Any = {"backend": self.backend, "peaks": peaks, "versions": versions}
        result = document.make(self.name, found, settings=settings, **more)
        if self.json == "-":
            print_json(result)
            return
        print_result(result, sys.stdout)
        if self.json is not None:
            document.write(Path(self.json), result)
