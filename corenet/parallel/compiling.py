"""Who compiles what: kernels shared out among workers, so that all are ready at about the same time.

Kernels of one file mostly call the same functions, which Numba compiles once in each process: they stay together. How
long a kernel takes goes, well enough, by the bytecode of all it calls; families are dealt from the longest to the
shortest, each to whom has least. Every worker comes to the same result by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..engine import Call


def deal(calls: Iterable[Call], workers: int) -> list[list[Call]]:
    """For each worker the calls whose kernels it compiles: one for each operation and types of arguments."""
    kernels: dict[tuple, Call] = {}
    for call in calls:
        kernels.setdefault((call.operation, *map(_kind, call.args)), call)
    families: dict[str, list[Call]] = {}
    for call in kernels.values():
        loops = _loops(call)
        families.setdefault(loops.__module__ if loops else "", []).append(call)
    lengths = {name: _length(family) for name, family in families.items()}
    shares: list[list[Call]] = [[] for _ in range(workers)]
    loads = [0] * workers
    for name in sorted(families, key=lambda name: (-lengths[name], name)):
        least = loads.index(min(loads))
        shares[least] += families[name]
        loads[least] += lengths[name]
    return shares


def _loops(call: Call) -> Callable | None:
    """The nest to compile; a function of a user's own layer has none."""
    return getattr(call.operation, "loops", None)


def _kind(value: Any) -> Any:
    """What of an argument a kernel is compiled for."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.ndim, value.flags.c_contiguous
    return tuple(map(_kind, value)) if isinstance(value, tuple) else type(value)


def _length(calls: Iterable[Call]) -> int:
    """Bytes of bytecode of their nests and of the device functions that they call, each once."""
    found: set[Callable] = set()
    waiting = [loops for call in calls if (loops := _loops(call))]
    while waiting:
        function = waiting.pop()
        if function not in found:
            found.add(function)
            used = map(function.__globals__.get, function.__code__.co_names)
            waiting += [value for value in used if callable(value) and getattr(value, "is_device", False)]
    return sum(len(function.__code__.co_code) for function in found)
