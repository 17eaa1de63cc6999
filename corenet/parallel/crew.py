"""The parent's side: the workers of a run, what they are told, and what happens when one of them is lost.

    parent                                    worker 0 … W−1
      ├── orders, kept for whoever joins ───▶ segments, plans                   no answer
      ├── jobs ─────────────────────────────▶ train, predict, compile, …        each answers when it is done
      └── segments: anonymous shared memory, passed as descriptors; it has no name, so nothing can be left over

A worker is lost if its process ends, if it has no memory left, or if it makes no progress for too long (`watch.py`).
Then the others are called off, a new process takes its seat, all are given their orders anew, and the job is sent
again. Jobs allow that at any moment: training begins at the first step that is not complete, from a copy of the state
that nobody has written to since (`exchange.py`), and predictions are simply made again. So nothing of it shows in the
result. If too many are lost, the rest go on with fewer.
"""

from __future__ import annotations

import os
import select
import weakref
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from ..errors import ConfigError, CorenetError, WorkerError
from .barrier import DEFAULT_SPINS, Control, create_barrier
from .exchange import FAILED_STEP, STEP, Fields, control_fields
from .memory import Segment
from .process import GRACE, WorkerProcess, undisturbed
from .recovery import Recovery, nobody_left, raised
from .topology import Layout
from .watch import Watch

TICK = 0.1  # seconds between looks at the progress
ANSWERS = ("started", "done", "aborted")


class Crew:
    """The worker processes of a run, and the memory they share."""

    def __init__(self, layout: Layout, kernels: str = "auto", max_restarts: int = 3, timeout: float = 60.0):
        """Start them. max_restarts: processes that may take the place of lost ones; timeout: seconds without progress
        after which a worker counts as lost.
        """
        self.layout, self.kernels = layout, kernels
        self.restarts_left, self.timeout = max_restarts, timeout
        self.recoveries: list[Recovery] = []
        self.segments: dict[str, Segment] = {}
        self.orders: dict[str, dict[str, Any]] = {}
        self.backend, self.backend_reason = kernels, ""
        control = self.segments["control"] = Segment.create(control_fields(layout.workers))
        self.status, self.times, self.beats = control["status"], control["times"], control["beats"]
        self.status[FAILED_STEP] = -1
        self.members: list[WorkerProcess] = []  # by rank
        self._barriers: list[Control] = []  # the one that is in use
        self._busy: dict[int, int] = {}  # descriptor of the channel → rank, of workers that have not answered yet
        self._gone: dict[int, str] = {}  # rank → cause, of workers that are lost and not replaced yet
        self._started = False
        self._close = weakref.finalize(self, _close, os.getpid(), self.members, self.segments, self._barriers)
        try:
            for seat in range(layout.workers):
                self._seat(seat, seat)
            self._brief()
        except BaseException:
            self.close()
            raise

    @property
    def barrier(self) -> Control:
        """Where the workers meet."""
        return self._barriers[0]

    @property
    def processes(self) -> list:
        """The workers' processes, by rank."""
        return [member.process for member in self.members]

    def _seat(self, rank: int, seat: int) -> None:
        with undisturbed():
            self.members.insert(rank, WorkerProcess(seat, self.layout))

    def _brief(self) -> None:
        """Tell everybody who they are, what there is, and what to be prepared for; each answers that it has started."""
        control, workers = self.segments["control"], len(self.members)
        with undisturbed():
            while self._barriers:
                self._barriers.pop().close()
            control["barrier"][:] = 0
            spins = 0 if self.layout.shared else DEFAULT_SPINS
            self._barriers.append(create_barrier(workers, control["barrier"], spins))
        how = {"workers": workers, "threads": self.layout.threads, "kernels": self.kernels}
        self._expect_answers()
        for rank, member in enumerate(self.members):
            start = {"do": "start", "rank": rank, "seat": member.seat, "cpus": member.cpus, **how}
            fds = [control.fd, *self.barrier.fds(rank)]
            self._send(rank, {**start, "barrier": self.barrier.spec, "control": control.spec}, fds)
            for name, segment in self.segments.items():
                self._send(rank, {"do": "segment", "name": name, "spec": segment.spec}, [segment.fd])
            for order in self.orders.values():
                self._send(rank, order)

    # Talking.

    def _send(self, rank: int, message: Mapping[str, Any], fds: list[int] | None = None) -> None:
        if rank not in self._gone:
            try:
                self.members[rank].channel.send(dict(message), fds or [])
            except (EOFError, OSError):
                self._lose(rank)

    def _lose(self, rank: int, cause: str = "") -> None:
        """Note that a worker is lost; without a cause its process has ended by itself."""
        self._gone[rank] = cause
        self._busy.pop(self.members[rank].channel.fileno(), None)

    def _tell(self, message: Mapping[str, Any], fds: list[int] | None = None) -> None:
        try:
            for rank in range(len(self.members)):
                self._send(rank, message, fds)
        except BaseException:
            self.close()  # some have it and some have not: they would not agree any more
            raise

    def order(self, name: str, message: Mapping[str, Any]) -> None:
        """Tell every worker what to be prepared for, in place of an older order of that name; it is not answered."""
        self.orders[name] = dict(message)
        self._tell(message)

    def share(self, name: str, fields: Fields) -> Segment:
        """Create a segment of that name, in place of an older one, and give it to every worker."""
        old = self.segments.pop(name, None)
        if old is not None:
            old.close()
        segment = Segment.create(fields, promised=sum(other.untouched for other in self.segments.values()))
        self.segments[name] = segment
        self._tell({"do": "segment", "name": name, "spec": segment.spec}, [segment.fd])
        return segment

    def forget(self, name: str) -> None:
        """Give a segment up, here and in every worker."""
        self.segments.pop(name).close()
        self._tell({"do": "forget", "name": name})

    def run(
        self,
        message: Mapping[str, Any],
        tick: Callable[[], None] | None = None,
        hear: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """Send a job to all workers and wait until all have done it, whoever is lost meanwhile.

        `tick` is called some times a second, `hear` with every other event. Raises WorkerError if nobody is left or
        one raises. An exception here (Ctrl-C) calls the workers off; they stay usable, at the last complete step.
        """
        if self._busy and self._started:
            fix = "Callbacks may use the Trainer in on_epoch, not in on_progress; a second thread needs its own"
            raise ConfigError("the workers", expected="to be free", got="a call while they still train", fix=fix)
        self.wait_started()
        self.times[:] = 0
        try:
            while True:
                self._recover()
                self.beats[:] = 0
                self._expect_answers()
                self._tell(message)
                self._await(tick, hear)
                if not self._gone:
                    return
        except CorenetError:  # nobody is left, or one is not able to do it
            self.close()
            raise
        except BaseException:
            self._call_off()
            raise

    def wait_started(self) -> None:
        """Wait until all workers run; their kernels are known then."""
        if not self._started:
            try:
                self._await()
                self._recover()
            except BaseException:
                self.close()
                raise
            self._started = True

    def _expect_answers(self) -> None:
        self._busy = {
            member.channel.fileno(): rank for rank, member in enumerate(self.members) if rank not in self._gone
        }

    def _await(
        self,
        tick: Callable[[], None] | None = None,
        hear: Callable[[dict[str, Any]], None] | None = None,
        called_off: bool = False,
        within: float | None = None,
    ) -> None:
        """Hear the busy workers until none is; or until one is lost, but those called off are all waited for.

        TimeoutError after `within` seconds.
        """
        poll = select.poll()
        for fd in self._busy:
            poll.register(fd, select.POLLIN)
        watch, look = Watch(self.timeout), monotonic()
        end = None if within is None else look + within
        while self._busy and (called_off or not self._gone):
            for fd, _ in poll.poll(max(0.0, look + TICK - monotonic()) * 1000):
                rank = self._busy[fd]
                if self._hear(rank, hear, called_off):
                    self._busy.pop(fd, None)
                    poll.unregister(fd)
            now = monotonic()
            if now < look + TICK:
                continue
            seats = {self.members[rank].seat: rank for rank in self._busy.values()}
            for seat in watch.stuck(self.beats, seats, min(now - look, 2 * TICK)):
                poll.unregister(self.members[seats[seat]].channel.fileno())
                self._lose(seats[seat], f"made no progress for {self.timeout:g} s")
            look = now
            if tick is not None:
                tick()
            if end is not None and now >= end and self._busy:
                raise TimeoutError

    def _hear(self, rank: int, hear: Callable[[dict[str, Any]], None] | None, called_off: bool) -> bool:
        """Take one event of a worker; whether it was its last for now."""
        try:
            event, _ = self.members[rank].channel.receive()
        except (EOFError, OSError):
            self._lose(rank)
            return True
        if event["event"] == "error":
            if event["kind"] != "MemoryError":
                raise raised(self.members[rank], event)
            self._lose(rank, f"has no memory left\n\n{event['traceback']}")
            return True
        if event["event"] == "aborted" and not called_off:
            raise WorkerError(f"{self.members[rank].name} was called off, but not by this process")
        if event["event"] == "started":
            self.backend, self.backend_reason = event["backend"], event["reason"]
        elif hear is not None:
            hear(event)
        return event["event"] in ANSWERS

    def _call_off(self) -> None:
        """Stop a job. If one does not answer soon (it compiles, or its answer was lost), all are ended."""
        if self.closed:
            return
        try:
            self.barrier.abort()
            self._await(called_off=True, within=GRACE)
            self.barrier.reset()
        except BaseException as error:
            self.close()
            if not isinstance(error, Exception):  # Ctrl-C once more
                raise

    # When workers are lost.

    def _recover(self) -> None:
        """While some are lost: bring the others to rest, put new ones in their place, and have all begin anew."""
        try:
            while self._gone:
                begin = monotonic()
                self.barrier.abort()
                self._await(called_off=True)
                lost = {self.members[rank]: cause for rank, cause in sorted(self._gone.items())}
                self._gone.clear()
                for member in lost:
                    lost[member] = self._replace(member, lost[member])
                if not self.members:
                    raise nobody_left(*lost.popitem(), int(self.status[STEP]))
                self._brief()
                self._await()
                for member, cause in lost.items():
                    who = member.seat, member.process.pid, member.cpus, int(self.status[STEP])
                    self.recoveries.append(Recovery(*who, cause, len(self.members), monotonic() - begin))
        except BaseException:
            self.close()
            raise

    def _replace(self, member: WorkerProcess, cause: str) -> str:
        """Put a new worker in the place of a lost one, or do without; what became of the lost one, with a traceback."""
        what, _, traceback = (cause or f"{member.fate()}\n\n{member.last_words()}").partition("\n\n")
        member.end()
        rank = self.members.index(member)
        del self.members[rank]
        if self.restarts_left > 0:
            self.restarts_left -= 1
            try:
                self._seat(rank, member.seat)
            except WorkerError as error:
                what += f" and cannot be replaced ({error})"
        return what + (f"\n\n{traceback}" if traceback else "")

    # The end.

    def close(self) -> None:
        """End the workers and free the memory; safe to call again."""
        self._close()

    @property
    def closed(self) -> bool:
        """Whether the workers have been ended."""
        return not self._close.alive


def _close(owner: int, members: list[WorkerProcess], segments: dict[str, Segment], barriers: list[Control]) -> None:
    if os.getpid() != owner:  # a copy of the parent, made by fork, must not end what is not its own
        return
    with undisturbed():
        for barrier in barriers:
            barrier.abort()  # nobody stays inside a step
        for member in members:
            member.channel.hang_up()
        end = monotonic() + GRACE
        for member in members:
            member.end(max(0.0, end - monotonic()))
        for barrier in barriers:
            barrier.close()
        for segment in segments.values():
            segment.close()
        segments.clear()
