"""What the machine could do at best, measured before anything else: all figures are seen against it.

    multiply-adds   the register tile of all kernels, with one factor in registers and the other in the nearest cache
    bandwidth       a = b + 3·c on arrays far larger than the caches; 12 bytes an element, as STREAM counts them

Both on one core, and on all at once, where the clock may be lower and the memory is shared.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..kernels import native, peaks
from ..kernels.backend import Backend
from ..kernels.tile import LANES
from ..parallel.topology import bind
from .rounds import Spread

ROWS = 240  # whole tiles, whichever of its heights the tile has
STEPS, REPEATS = 512, 200  # multiply-adds of an element: so many different ones, so often; 0.8 GFLOP in all
LEAST_ARRAY, MOST_ARRAY = 32 << 20, 256 << 20  # bytes of one of the three arrays


@dataclass(frozen=True)
class Peaks:
    """By the number of cores at work: GFLOP/s, and GB/s from memory."""

    gflops: dict[int, Spread]
    bandwidth: dict[int, Spread]

    def compute(self, cores: int) -> float:
        """GFLOP/s of that many cores: the best that was seen."""
        return self.gflops[cores].high

    def memory(self, cores: int) -> float:
        """GB/s of that many cores: the best that was seen."""
        return self.bandwidth[cores].high

    def to_json(self) -> dict[str, Any]:
        """As JSON has it, where names of members are texts."""
        return {
            "gflops": {str(cores): spread.to_json() for cores, spread in self.gflops.items()},
            "gbytes_per_second": {str(cores): spread.to_json() for cores, spread in self.bandwidth.items()},
        }


def measure_peaks(backend: Backend, cores: list[int], rounds: int, array: int | None = None) -> Peaks:
    """The peaks of one of these cores, and of all of them at once; `array`: bytes of each array of the triad."""
    size = (array or _array_bytes()) // 4
    counts = sorted({1, len(cores)})
    gflops, bandwidth = {}, {}
    for count in counts:
        used = cores[:count]
        gflops[count] = _measure(
            used, lambda: _multiply_adds(backend), 2e-9 * ROWS * LANES * STEPS * REPEATS * count, rounds
        )
        share = size // count  # of each core: all together go over as much, whatever their number
        bandwidth[count] = _measure(used, lambda n=share: _triad(backend, n), 12e-9 * share * count, rounds)  # type: ignore[misc]
    return Peaks(gflops, bandwidth)


@contextlib.contextmanager
def at_work(core: int) -> Iterator[None]:
    """Let the calling thread compute as a worker does: on its core, with denormals counted as 0."""
    before, flushed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(), native.flush_to_zero()
    bind([core])
    native.set_flush_to_zero(True)
    try:
        yield
    finally:
        native.set_flush_to_zero(flushed)
        if before:
            bind(before)


def _multiply_adds(backend: Backend) -> Callable[[], Any]:
    a, b = np.full(STEPS, 1e-3, np.float32), np.full(LANES, 1e-3, np.float32)
    args = ROWS, REPEATS, a, b, np.zeros((ROWS, LANES), np.float32)
    run = backend.function(peaks.multiply_adds, args)
    return lambda: run(*args)


def _triad(backend: Backend, size: int) -> Callable[[], Any]:
    args = size, *(np.ones(size, np.float32) for _ in range(3))
    run = backend.function(peaks.triad, args)
    return lambda: run(*args)


def _measure(cores: list[int], prepare: Callable[[], Callable[[], Any]], work: float, rounds: int) -> Spread:
    """`work` of all threads together ÷ the time from when the first begins to when the last ends, in each round.

    `prepare` gives a thread what it runs; it is called in the thread, since memory belongs to the core that first
    touches it.
    """
    meet = threading.Barrier(len(cores))
    times: dict[int, list[tuple[float, float]]] = {core: [] for core in cores}
    errors: list[Exception] = []

    def work_on(core: int) -> None:
        try:
            with at_work(core):
                run = prepare()
                for number in range(rounds + 1):
                    meet.wait()
                    begin = time.perf_counter()
                    run()
                    if number:  # the first warms up
                        times[core].append((begin, time.perf_counter()))
        except threading.BrokenBarrierError:
            pass
        except Exception as error:
            errors.append(error)
            meet.abort()

    threads = [threading.Thread(target=work_on, args=(core,), daemon=True) for core in cores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    by_round = zip(*times.values(), strict=True)
    return Spread.of([work / (max(e for _, e in turn) - min(b for b, _ in turn)) for turn in by_round])


def _array_bytes(root: str | Path = "/") -> int:
    """Twice the largest cache, within bounds: then three arrays are six times as large."""
    sizes = [0]
    for path in Path(root, "sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError):
            if found := re.fullmatch(r"(\d+)([KMG]?)", path.read_text().strip()):
                sizes.append(int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]])
    return min(max(2 * max(sizes), LEAST_ARRAY), MOST_ARRAY)
