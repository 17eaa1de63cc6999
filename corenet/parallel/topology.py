"""Which cores a run may use, and which worker gets which.

    usable = the process's affinity            taskset, a batch system, a container's cpuset
             ∩ one thread per physical core    hyper-threads share one core's arithmetic units: a second gains nothing
             cut to the cgroup's CPU quota     a container may have 2 cores' worth of time on a machine with 64

`cores`, `cpus`: the kernel's numbers of logical processors. A made-up `root` in place of `/` lets tests describe any
machine.
"""

import contextlib
import operator
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from ..errors import ConfigError
from . import cgroup


@dataclass(frozen=True)
class Layout:
    """Who computes where: the workers, the threads of each, the cores of each, and a line that says why."""

    workers: int
    threads: int
    cpus: tuple[tuple[int, ...], ...]
    reason: str
    shared: bool = False  # some core has more than one thread to run: nobody should spin there


def usable_cpus(root: str | Path = "/", affinity: Collection[int] | None = None) -> list[int]:
    """The cores this process should use, ascending; never empty."""
    return _usable(Path(root), affinity)[0]


def plan_layout(
    workers: int | Literal["auto"],
    threads: int = 1,
    share_cores: bool = False,
    *,
    root: str | Path = "/",
    affinity: Collection[int] | None = None,
) -> Layout:
    """Give each of `workers` processes `threads` cores of its own; "auto" is as many workers as that allows.

    Raises ConfigError if the cores do not suffice, unless `share_cores` lets several threads take turns on one.
    """
    usable, why = _usable(Path(root), affinity)
    threads = _count("threads", threads)
    count = max(1, len(usable) // threads) if workers == "auto" else _count("workers", workers, ' or "auto"')
    needed = count * threads
    if needed > len(usable) and not share_cores:
        fits = len(usable) // threads
        fewer = f"workers={fits}" if fits else f"threads={len(usable)}"
        raise ConfigError(
            "workers x threads",
            expected=f"at most {len(usable)}, the usable cores ({why})",
            got=f"{count} x {threads} = {needed}",
            fix=f"Use {fewer} or less, or share_cores=True (--share-cores)",
        )
    # Dealt one after the other; when they run out, from the first again.
    dealt = [usable[i % len(usable)] for i in range(needed)]
    cpus = tuple(tuple(sorted(set(dealt[w * threads : (w + 1) * threads]))) for w in range(count))
    used = ", ".join(str(cpu) for cpu in sorted(set(dealt)))
    reason = (
        f"{_plural(count, 'worker')} x {_plural(threads, 'thread')} "
        f"{'sharing' if needed > len(usable) else 'on'} core{'s' if len(set(dealt)) > 1 else ''} {used} "
        f"({len(usable)} usable: {why})"
    )
    return Layout(count, threads, cpus, reason, shared=needed > len(usable))


def bind(cpus: Iterable[int]) -> None:
    """Keep the calling thread, and those it starts, on these cores; where that is impossible, nothing changes."""
    if hasattr(os, "sched_setaffinity"):
        # The kernel ignores cores it does not have; it objects only if none is left, as when one went offline.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, set(cpus))


def _usable(root: Path, affinity: Collection[int] | None) -> tuple[list[int], str]:
    """The usable cores, and the numbers that led there."""
    if affinity is not None:
        allowed = sorted(set(affinity))
    elif hasattr(os, "sched_getaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
    else:  # no affinity on this system: numbers serve only to count
        allowed = list(range(psutil.cpu_count(logical=False) or os.cpu_count() or 1))
    physical = one_per_core(allowed, root) or [0]
    quota = cgroup.cpu_quota(root)
    # Rounded down: workers wait for each other, so one that is throttled halts them all.
    usable = physical if quota is None else physical[: max(1, int(quota + 1e-9))]
    limit = "none" if quota is None else f"{quota:g}"
    return usable, f"affinity {len(allowed)}, physical {len(physical)}, cgroup quota {limit}"


def one_per_core(cpus: Iterable[int], root: Path) -> list[int]:
    """The first of each group of hyper-threads that share a core, out of `cpus`."""
    chosen: list[int] = []
    for cpu in sorted(cpus):
        siblings = parse_cpu_list(cgroup.read(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
        if cpu not in siblings or siblings.isdisjoint(chosen):  # a list without the core itself is no such list
            chosen.append(cpu)
    return chosen


def parse_cpu_list(text: str) -> set[int]:
    """The numbers in the kernel's notation, such as "0-3,8"; none if it is not that."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part.strip(), re.ASCII)
        if not match:
            return set()
        numbers.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return numbers


def _count(name: str, value: object, alternative: str = "") -> int:
    """A whole number of at least 1; True is not a number of workers."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number < 1:
        raise ConfigError(name, expected=f"a whole number of at least 1{alternative}", got=repr(value))
    return number


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
