"""One worker process as its parent sees it: how it is started, and what can be said of its end.

    parent                                worker
      │  spawn (a fresh interpreter, never a fork)
      ├── channel ──────────────────────▶ one Unix socket: commands down, events up; end of file = the other is gone
      └── last words ◀─────────────────── an anonymous file that takes the traceback of a crash

A worker is started with the numbers of threads it may use in its environment, since libraries read them when they
load. It shares the parent's process group (Ctrl-Z stops all), but Ctrl-C is the parent's alone to handle.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import WorkerError
from .channel import Channel
from .topology import Layout

GRACE = 2.0  # seconds that a worker has to end by itself
_MAX_WORDS = 16_000  # bytes of a traceback

# The very package that runs here, then the search path of `_search_path`, before anything of them is imported.
_BOOTSTRAP = """\
import sys
root, *sys.path[:] = sys.argv[1:-2]
import importlib, typing
sys.path.insert(0, root)
import corenet
del sys.path[0]
from corenet.parallel.worker import main
main()"""
_ROOT = str(Path(__file__).parents[2])


class WorkerProcess:
    """A worker: its seat (its place in the layout, which decides its cores), its process, the channel to it."""

    def __init__(self, seat: int, layout: Layout):
        """Start it. Raises WorkerError if the system does not let it start."""
        self.seat, self.cpus = seat, layout.cpus[seat]
        self._words = _anonymous_file()
        isolated = ["-I"] if sys.flags.isolated else []
        command = [sys.executable, *isolated, "-c", _BOOTSTRAP, _ROOT, *_search_path()]
        self.channel, theirs = Channel.pair()
        # The signal mask is inherited, so Ctrl-C cannot hit the worker before it has said that it ignores it.
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            fds = self._words.fileno(), theirs.fileno()
            self.process = subprocess.Popen(
                [*command, *map(str, fds)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                env=environment(layout),
                cwd=_folder(),
            )
        except OSError as error:
            self.channel.close()
            self._words.close()
            raise WorkerError(f"worker {seat} could not be started", got=error.strerror or str(error)) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
            theirs.close()

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"worker {self.seat} (pid {self.process.pid}, core {', '.join(map(str, self.cpus))})"

    def fate(self) -> str:
        """What became of one whose channel has ended; it is ended if it still runs."""
        try:
            code = self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return "closed its channel but still runs"
        if code >= 0:
            return f"ended with exit code {code}"
        why = ""
        if code == -signal.SIGKILL:
            why = " (likely cause: out of memory, or somebody killed it)"
        elif code in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL):
            why = " (a defect in a kernel or a library)"
        return f"was killed by {_signal_name(-code)}{why}"

    def last_words(self) -> str:
        """The traceback of the crash, if it could still write one."""
        words = os.pread(self._words.fileno(), _MAX_WORDS, 0).decode(errors="replace")
        return words.partition("\nExtension modules:")[0].strip()

    def end(self, within: float = 0.0) -> None:
        """Let it go by itself for some seconds, then kill it; safe to call again."""
        self.channel.hang_up()  # a worker that reads end of file exits, whatever it is doing
        try:
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._words.close()


def _anonymous_file() -> BinaryIO:
    if hasattr(os, "memfd_create"):  # needs no disk, which may be full
        return os.fdopen(os.memfd_create("corenet"), "rb")
    return tempfile.TemporaryFile()


def environment(layout: Layout) -> dict[str, str]:
    """The environment of a worker."""
    threads = str(layout.threads)
    numba = {
        "NUMBA_NUM_THREADS": threads,
        "OMP_NUM_THREADS": threads,
        "NUMBA_THREADING_LAYER_PRIORITY": "omp tbb workqueue",
    }
    blas = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")
    # Threads that share a core must not spin while they wait for a kernel: they would keep each other from it.
    patience = {"OMP_WAIT_POLICY": "passive"} if layout.shared else {}
    return {**patience, **os.environ, **numba, **blas}


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
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


def _folder() -> str | None:
    """Where a worker starts: the current folder; if that is gone, another, since not every NumPy starts in none."""
    try:
        os.getcwd()
    except OSError:
        return "/"
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names of their own
        return f"signal {number}"
