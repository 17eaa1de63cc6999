"""The parent's side: starts the workers, talks to them, notices when one is gone, and leaves nothing behind.

    parent                         worker 0 … W−1
      │  spawn (a fresh interpreter, never a fork)
      ├── channel 0 ───────────────▶ one Unix socket each: commands down, events up; end of file = the other is gone
      ├── channel W−1 ─────────────▶
      └── segments: anonymous shared memory, passed as descriptors; it has no name, so nothing can be left over

Workers are started with the numbers of threads they may use in their environment, since libraries read them when they
load. They share the parent's process group (Ctrl-Z stops all), but Ctrl-C is the parent's alone to handle.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from .. import errors
from ..errors import ConfigError, CorenetError, WorkerError
from .barrier import DEFAULT_SPINS, Control, create_barrier
from .channel import Channel
from .exchange import FAILED_STEP, STEP, Fields, control_fields
from .memory import Segment
from .topology import Layout

TICK = 0.1  # seconds between looks at the progress
GRACE = 2.0  # seconds that a worker has to end by itself

# The very package that runs here, then the search path of `_search_path`, before anything of them is imported.
_BOOTSTRAP = """\
import sys
root, *sys.path[:] = sys.argv[1:-1]
import importlib, typing
sys.path.insert(0, root)
import corenet
del sys.path[0]
from corenet.parallel.worker import main
main()"""
_ROOT = str(Path(__file__).parents[2])


class Crew:
    """The worker processes of a run, and the memory they share."""

    def __init__(self, layout: Layout, kernels: str = "auto"):
        self.layout = layout
        self.segments: dict[str, Segment] = {}
        self.backend, self.backend_reason = kernels, ""
        control = self.segments["control"] = Segment.create(control_fields(layout.workers))
        self.status, self.times = control["status"], control["times"]
        self.status[FAILED_STEP] = -1
        self.barrier: Control = create_barrier(
            layout.workers, control["barrier"], 0 if layout.shared else DEFAULT_SPINS
        )
        self.processes: list[subprocess.Popen] = []
        self.channels: list[Channel] = []
        self._busy: dict[int, int] = {}  # descriptor of the channel → rank, of workers that have not answered yet
        self._close = weakref.finalize(
            self, _close, os.getpid(), self.processes, self.channels, self.segments, self.barrier
        )
        self._started = False
        try:
            for rank in range(layout.workers):
                self._spawn(rank)
            self._expect_answers()
            for rank in range(layout.workers):
                start = {
                    "do": "start",
                    "rank": rank,
                    "workers": layout.workers,
                    "cpus": layout.cpus[rank],
                    "threads": layout.threads,
                    "kernels": kernels,
                    "barrier": self.barrier.spec,
                    "control": control.spec,
                }
                self._send(rank, start, [control.fd, *self.barrier.fds(rank)])
        except BaseException:
            self.close()
            raise

    def _spawn(self, rank: int) -> None:
        isolated = ["-I"] if sys.flags.isolated else []
        command = [sys.executable, *isolated, "-c", _BOOTSTRAP, _ROOT, *_search_path()]
        with _undisturbed():
            ours, theirs = Channel.pair()
            self.channels.append(ours)
            # The signal mask is inherited, so Ctrl-C cannot hit the worker before it has said that it ignores it.
            old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                self.processes.append(
                    subprocess.Popen(
                        [*command, str(theirs.fileno())],
                        pass_fds=[theirs.fileno()],
                        stdin=subprocess.DEVNULL,
                        env=self._environment(),
                    )
                )
            except OSError as error:
                raise WorkerError(f"worker {rank} could not be started", got=error.strerror or str(error)) from error
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
                theirs.close()

    def _environment(self) -> dict[str, str]:
        threads = str(self.layout.threads)
        numba = {
            "NUMBA_NUM_THREADS": threads,
            "OMP_NUM_THREADS": threads,
            "NUMBA_THREADING_LAYER_PRIORITY": "omp tbb workqueue",
        }
        blas = dict.fromkeys(
            ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
        )
        # Threads that share a core must not spin while they wait for a kernel: they would keep each other from it.
        patience = {"OMP_WAIT_POLICY": "passive"} if self.layout.shared else {}
        return {**patience, **os.environ, **numba, **blas}

    # Talking.

    def _send(self, rank: int, message: dict[str, Any], fds: list[int] | None = None) -> None:
        try:
            self.channels[rank].send(message, fds or [])
        except (EOFError, OSError) as error:
            raise self._lost(rank) from error

    def tell(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        """Send a message that needs no answer to every worker."""
        try:
            for rank in range(self.layout.workers):
                self._send(rank, message, fds)
        except BaseException:
            self.close()  # some have it and some have not: they would not agree any more
            raise

    def share(self, name: str, fields: Fields) -> Segment:
        """Create a segment of that name, in place of an older one, and give it to every worker."""
        segment = Segment.create(fields)
        old = self.segments.pop(name, None)
        if old is not None:
            old.close()
        self.segments[name] = segment
        self.tell({"do": "segment", "name": name, "spec": segment.spec}, [segment.fd])
        return segment

    def forget(self, name: str) -> None:
        """Give a segment up, here and in every worker."""
        self.segments.pop(name).close()
        self.tell({"do": "forget", "name": name})

    def run(
        self,
        message: Mapping[str, Any],
        tick: Callable[[], None] | None = None,
        hear: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """Send a command to all workers and wait until all have done it.

        `tick` is called some times a second, `hear` with every other event. Raises WorkerError if a worker dies or
        raises. An exception here (Ctrl-C) calls the workers off; they stay usable, at the last step that was complete.
        """
        if self._busy and self._started:
            fix = "Callbacks may use the Trainer in on_epoch, not in on_progress; a second thread needs its own"
            raise ConfigError("the workers", expected="to be free", got="a call while they still train", fix=fix)
        self.wait_started()
        self.times[:] = 0
        try:
            self._expect_answers()
            self.tell(dict(message))
            self._await("done", tick, hear)
        except CorenetError:  # of a worker: lost, or not able to do it
            self.close()
            raise
        except BaseException:
            self._call_off()
            raise

    def wait_started(self) -> None:
        """Wait until all workers run; their kernels are known then."""
        if not self._started:

            def note(event: dict[str, Any]) -> None:
                self.backend, self.backend_reason = event["backend"], event["reason"]

            try:
                self._await("started", hear=note)
            except BaseException:
                self.close()
                raise
            self._started = True

    def _expect_answers(self) -> None:
        self._busy = {channel.fileno(): rank for rank, channel in enumerate(self.channels)}

    def _await(
        self,
        wanted: str,
        tick: Callable[[], None] | None = None,
        hear: Callable[[dict[str, Any]], None] | None = None,
        called_off: bool = False,
    ) -> None:
        """Hear the busy workers until none is; TimeoutError if they were called off and have not answered in time."""
        poll = select.poll()
        for fd in self._busy:
            poll.register(fd, select.POLLIN)
        due = monotonic() + TICK
        end = monotonic() + GRACE if called_off else None
        while self._busy:
            limits = [limit for limit in (due if tick else None, end) if limit is not None]
            for fd, _ in poll.poll(max(0.0, min(limits) - monotonic()) * 1000 if limits else None):
                rank = self._busy[fd]
                try:
                    event, _ = self.channels[rank].receive()
                except (EOFError, OSError) as error:
                    raise self._lost(rank) from error
                if event["event"] == "error":
                    raise _raised(rank, event)
                if hear is not None:
                    hear(event)
                if event["event"] == "aborted" and not called_off:
                    raise WorkerError(f"worker {rank} was called off, but not by this process")
                if event["event"] in (wanted, "aborted"):
                    del self._busy[fd]
                    poll.unregister(fd)
            if end is not None and monotonic() >= end and self._busy:
                raise TimeoutError
            if tick and monotonic() >= due:
                tick()
                due = monotonic() + TICK

    def _call_off(self) -> None:
        """Stop a job. If one does not answer soon (it compiles, or its answer was lost), all are ended."""
        if self.closed:
            return
        try:
            self.barrier.abort()
            self._await("done", called_off=True)
            self.barrier.reset()
        except BaseException as error:
            self.close()
            if not isinstance(error, Exception):  # Ctrl-C once more
                raise

    def _lost(self, rank: int) -> WorkerError:
        process = self.processes[rank]
        try:
            code = process.wait(GRACE)
        except subprocess.TimeoutExpired:
            how = "closed its channel but still runs"
        else:
            how = f"ended with exit code {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
            if code == -signal.SIGKILL:
                how += " (likely cause: out of memory, or somebody killed it)"
            elif code in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL):
                how += " (a defect in a kernel or a library)"
        cores = ", ".join(map(str, self.layout.cpus[rank]))
        return WorkerError(
            f"worker {rank} (pid {process.pid}, core {cores}) {how} at step {self.status[STEP]}",
            fix="The net is as it was before that step; fit goes on from there, with new workers",
        )

    def close(self) -> None:
        """End the workers and free the memory; safe to call again."""
        self._close()

    @property
    def closed(self) -> bool:
        """Whether the workers have been ended."""
        return not self._close.alive


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold Ctrl-C back to the end of the block: in between it would leave a process that nobody knows of."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is None or threading.current_thread() is not threading.main_thread():  # then it does not come here
        yield
        return
    held: list[tuple] = []
    signal.signal(signal.SIGINT, lambda *which: held.append(which))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held and callable(handler):
            handler(*held[0])


def _search_path() -> list[str]:
    """This process's sys.path, its program's folders last: a file numba.py there is the user's, not Numba."""
    program = {"", "."}
    script = getattr(sys.modules["__main__"], "__file__", None)
    with contextlib.suppress(OSError):  # the current folder may be gone
        program.add(os.getcwd())
        if script is not None:
            program.add(os.path.dirname(os.path.abspath(script)))
    return sorted(map(str, sys.path), key=program.__contains__)


def _raised(rank: int, event: dict[str, Any]) -> CorenetError:
    """An error of corenet as it was, about the user's own settings; all else with the worker's traceback."""
    kind = getattr(errors, event["kind"], None)
    if isinstance(kind, type) and issubclass(kind, CorenetError):
        return kind(event["message"])
    return WorkerError(f"worker {rank} raised {event['kind']}\n\n{event['traceback']}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names of their own
        return f"signal {number}"


def _close(
    owner: int, processes: list, channels: list[Channel], segments: dict[str, Segment], barrier: Control
) -> None:
    if os.getpid() != owner:  # a copy of the parent, made by fork, must not end what is not its own
        return
    with _undisturbed():
        barrier.abort()  # nobody stays inside a step
        for channel in channels:
            channel.hang_up()  # a worker that reads end of file exits, whatever it is doing
        end = monotonic() + GRACE
        for process in processes:
            try:
                process.wait(max(0.0, end - monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        barrier.close()
        for segment in segments.values():
            segment.close()
        segments.clear()
