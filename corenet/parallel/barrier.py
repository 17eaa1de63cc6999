"""The barrier between the phases of a step: nobody goes on before all have arrived, unless the parent calls it off.

    worker 0 ──┐                              ┌── goes on
    worker 1 ──┼── wait() ... the last one ───┼── goes on          parent: a worker died ── abort() ──▶ every wait()
    worker 2 ──┘   opens the barrier          └── goes on                                               raises Aborted

Two implementations, one meaning. `AtomicBarrier` is a few words of shared memory and costs about a microsecond
(csrc/barrier.c explains it); with it a round is passed by all or by none, even if it is aborted meanwhile.
`PipeBarrier` needs no C library, only pipes, and costs some tens of microseconds; an abort that comes while a round
completes may let some pass and stop others, so the parent must ask each worker how far it got.

The parent makes one with `create_barrier` and keeps the `Control`; each worker gets `control.spec` (JSON) and
`control.fds(rank)` and makes its `Barrier` from them with `open_barrier`.
"""

import contextlib
import os
import select
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..kernels import native

# Looks before a worker gives its core away, a quarter to half a millisecond. Waking up from sleep was measured to take
# 25 to 55 microseconds, from spinning 1 to 2; and slices that fit their workers end closer together than this.
DEFAULT_SPINS = 10_000


class Aborted(Exception):
    """The parent called the step off while this worker was at, or on its way to, the barrier."""


class Barrier(ABC):
    """A worker's side."""

    @abstractmethod
    def wait(self) -> None:
        """Return once all workers have called this; raise Aborted if the parent aborts first, or has."""

    @abstractmethod
    def close(self) -> None:
        """Give back what the barrier holds in this process."""


class Control(ABC):
    """The parent's side."""

    spec: dict[str, Any]  # describes the barrier to a worker; JSON can carry it

    @abstractmethod
    def fds(self, rank: int) -> list[int]:
        """The file descriptors that worker `rank` needs, in the order in which `open_barrier` expects them."""

    @abstractmethod
    def abort(self) -> None:
        """Make every wait that has not completed raise Aborted, and every later one, until `reset`."""

    @abstractmethod
    def reset(self) -> None:
        """Make an aborted barrier usable again; only while no live worker is inside `wait`."""

    @abstractmethod
    def close(self) -> None:
        """Give back what the barrier holds in this process."""


def create_barrier(n: int, words: np.ndarray, spins: int = DEFAULT_SPINS) -> Control:
    """The fastest barrier for `n` workers that this installation has; `words` as in AtomicBarrier."""
    return AtomicBarrier(words, n, spins) if native.available else PipeControl(n)


def open_barrier(spec: dict[str, Any], rank: int, words: np.ndarray, fds: Sequence[int] = ()) -> Barrier:
    """Worker `rank`'s side of the barrier that `spec` describes; the descriptors belong to it from here on."""
    if spec["kind"] == "atomic":
        return AtomicBarrier(words, spec["n"], spec["spins"])
    return PipeBarrier(spec["n"], rank, fds)


class AtomicBarrier(Barrier, Control):
    """A barrier in shared memory: `words` is a zeroed array of WORDS uint32 in a Segment, the same for all.

    `spins` is how often a waiting worker looks before it lets others have its core: 0 where workers share cores.
    """

    WORDS = 48  # three cache lines, see struct corenet_barrier

    def __init__(self, words: np.ndarray, n: int, spins: int = DEFAULT_SPINS):
        if not native.available:
            raise ConfigError("AtomicBarrier", expected="the C library", got=native.reason, fix="Use PipeControl")
        if words.nbytes < 4 * self.WORDS or not words.flags.c_contiguous or words.ctypes.data % 64:
            raise ConfigError("AtomicBarrier", expected=f"{self.WORDS} uint32 at a multiple of 64 bytes", got=words)
        self.spec = {"kind": "atomic", "n": n, "spins": spins}
        self._n, self._spins = n, spins
        self._words: np.ndarray | None = words  # keeps the memory mapped
        self._pointer = native.ffi.cast("corenet_barrier *", words.ctypes.data)
        self._wait = native.lib.corenet_barrier_wait

    def wait(self) -> None:
        # cffi releases the GIL during the call, so this process's other threads go on.
        if self._wait(self._pointer, self._n, self._spins):
            raise Aborted

    def fds(self, rank: int) -> list[int]:
        return []

    def abort(self) -> None:
        native.lib.corenet_barrier_abort(self._pointer)

    def reset(self) -> None:
        native.lib.corenet_barrier_reset(self._pointer)

    def close(self) -> None:
        self._pointer = None  # a late call is a TypeError, not a crash
        self._words = None


class PipeBarrier(Barrier):
    """A worker's side of a barrier made of pipes: every worker has an inbox, and one byte means "go on".

        worker 1 ──●──▶ ┌──────────┐ ──●──▶ inbox of worker 1
        worker 2 ──●──▶ │ worker 0 │ ──●──▶ inbox of worker 2
        worker 3 ──●──▶ └──────────┘ ──●──▶ inbox of worker 3

    All also watch one more pipe, which nobody reads but the parent in `reset`: a byte in it, or its end, means abort.
    The parent alone can write there, so its death ends the pipe, and the wait.
    """

    def __init__(self, n: int, rank: int, fds: Sequence[int]):
        self._fds = list(fds)
        self._abort, self._inbox, *self._outboxes = fds
        self._expected = n - 1 if rank == 0 else 1  # bytes that open the barrier
        self._leads = rank == 0
        self._both, self._only_abort = select.poll(), select.poll()
        self._both.register(self._inbox, select.POLLIN)
        for poll in (self._both, self._only_abort):
            poll.register(self._abort, select.POLLIN)

    def wait(self) -> None:
        if self._only_abort.poll(0):
            raise Aborted
        try:
            if self._leads:
                self._collect()
                self._send()
            else:
                self._send()
                self._collect()
        except BrokenPipeError:  # the parent is gone, and a worker with it
            raise Aborted from None

    def _collect(self) -> None:
        missing = self._expected
        while missing:
            ready = [fd for fd, _ in self._both.poll()]
            if self._inbox not in ready:
                raise Aborted
            missing -= len(os.read(self._inbox, missing))

    def _send(self) -> None:
        for outbox in self._outboxes:
            os.write(outbox, b".")

    def close(self) -> None:
        fds, self._fds = self._fds, []
        for fd in fds:
            os.close(fd)


class PipeControl(Control):
    """The parent's side of a barrier made of pipes. It keeps both ends of each, so a dead worker breaks none."""

    def __init__(self, n: int):
        self.spec = {"kind": "pipe", "n": n}
        self._abort = os.pipe()
        self._inboxes = [os.pipe() for _ in range(n)]  # of (read end, write end)

    def fds(self, rank: int) -> list[int]:
        receivers = self._inboxes[1:] if rank == 0 else self._inboxes[:1]
        return [self._abort[0], self._inboxes[rank][0], *(write for _, write in receivers)]

    def abort(self) -> None:
        os.write(self._abort[1], b"!")

    def reset(self) -> None:
        # The arrivals of a round that never completed, then the abort itself.
        for read, _ in [*self._inboxes, self._abort]:
            poll = select.poll()
            poll.register(read, select.POLLIN)
            while poll.poll(0):
                os.read(read, 4096)

    def close(self) -> None:
        pipes, self._inboxes, self._abort = [*self._inboxes, self._abort], [], (-1, -1)
        for pipe in pipes:
            for fd in pipe:
                with contextlib.suppress(OSError):  # closed before
                    os.close(fd)
