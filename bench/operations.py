"""Every operation's cases, the very table that the tests use, timed: the compiled nest beside its NumPy definition.

    python bench/operations.py [--only TEXT] [--rounds 7]

Cases are small, made to find mistakes: the figures show what a call costs, and loops that did not become vectors.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from kernel_cases import Case, all_cases

from corenet.kernels.backend import select

LEAST = 2e-4  # seconds that a measurement takes at least


def arguments(case: Case) -> list:
    """The case's arguments in float32; metrics and hyper-parameters stay double, as tests/test_kernels.py has them."""
    from test_kernels import DOUBLE, cast

    doubles = DOUBLE.get(case.operation.name, [])
    return [value if place in doubles else cast(value, np.float32) for place, value in enumerate(case.args)]


def microseconds(function, args: list, rounds: int) -> float:
    """The median time of a call."""
    begin, calls = perf_counter(), 0
    while perf_counter() - begin < LEAST:
        function(*args)
        calls += 1
    times = []
    for _ in range(rounds):
        begin = perf_counter()
        for _ in range(calls):
            function(*args)
        times.append((perf_counter() - begin) / calls)
    return 1e6 * statistics.median(times)


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="operations whose name contains this")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    backend = select("auto", 1)
    print(f"{backend.reason}\n{'operation':34}{'compiled':>12}{'definition':>12}  case      (µs a call)")
    for case in all_cases():
        if options.only in case.operation.name:
            args = arguments(case)
            compiled = microseconds(backend.function(case.operation, tuple(args)), args, options.rounds)
            definition = microseconds(case.operation, args, options.rounds)
            print(f"{case.operation.name:34}{compiled:12.2f}{definition:12.2f}  {case.label}", flush=True)


if __name__ == "__main__":
    main()
