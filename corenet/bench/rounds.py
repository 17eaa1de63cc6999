"""Contestants measured in turn, round by round, so that a machine that slows down half-way does not decide."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

Measure = Callable[[], float]  # one measurement: a rate


@dataclass(frozen=True)
class Spread:
    """Repetitions of one measurement: all of them, their median, the lowest and the highest."""

    values: list[float]
    median: float
    low: float
    high: float

    @staticmethod
    def of(values: list[float]) -> Spread:
        """The spread of some values."""
        return Spread(values, statistics.median(values), min(values), max(values))

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def interleave(contestants: dict[str, Measure], rounds: int, pause: float = 0.0) -> dict[str, Spread]:
    """Every round measures each contestant once, `pause` seconds apart, in which thread pools stop spinning."""
    values: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, measure in contestants.items():
            time.sleep(pause)
            values[name].append(measure())
    return {name: Spread.of(repetitions) for name, repetitions in values.items()}


def ratios(top: Spread, bottom: Spread) -> Spread:
    """The ratio of two contestants in each round."""
    return Spread.of([a / b for a, b in zip(top.values, bottom.values, strict=True)])


def repeated(run: Callable[[], Any], seconds: float) -> Measure:
    """A measurement of calls per second, of as many calls as take that long; they are counted here, once."""
    run()  # what only the first call does
    begin, calls = time.perf_counter(), 0
    while (passed := time.perf_counter() - begin) < seconds / 4 or not calls:
        run()
        calls += 1
    count = max(1, math.ceil(calls * seconds / passed))

    def measure() -> float:
        begin = time.perf_counter()
        for _ in range(count):
            run()
        return count / (time.perf_counter() - begin)

    return measure
