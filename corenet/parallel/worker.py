"""A worker process: started once, bound to its cores, told what to do over its channel, fed through shared memory.

    parent ── channel: small JSON messages, file descriptors of segments ──▶ inbox thread ──▶ queue ──▶ main thread
                                                                              │
                                                       end of file: the parent is gone, exit at once

A worker imports `corenet` and nothing of the user's program, so a script needs no main guard, and a notebook or a
script on standard input works as well. It ignores Ctrl-C: the parent decides what that means.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import queue
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import optim
from ..engine import Call, Plan, make_plan
from ..kernels import backend as backends
from ..kernels import native
from ..nn import Layer, build
from ..nn.loss import build_loss
from . import topology
from .balance import get_balancer
from .barrier import Aborted, Barrier, open_barrier
from .channel import Channel
from .chunks import ChunkRunner
from .compiling import deal
from .diagnosis import first_not_finite
from .exchange import STEP
from .memory import Segment
from .slices import Job
from .sync import STRATEGIES, Sync
from .user_layers import import_layers
from .watch import CHUNKS


class Worker:
    """What one worker process knows; each `do_…` method is a message of the parent."""

    def __init__(self, channel: Channel):
        self.channel = channel
        self.inbox: queue.SimpleQueue[tuple[dict[str, Any], list[int]]] = queue.SimpleQueue()
        self.rank, self.seat, self.workers = 0, 0, 1
        self.backend: backends.Backend
        self.barrier: Barrier
        self.segments: dict[str, Segment] = {}
        self.trainer: Sync | None = None
        self.predictors: dict[str, ChunkRunner] = {}
        self.user_layers: dict[str, type[Layer]] = {}
        self.unlinked: list[Call] = []
        self.uncompiled: list[Call] = []

    def serve(self) -> None:
        """Do what the parent says until it says stop, or goes away."""
        threading.Thread(target=self._read, name="inbox", daemon=True).start()
        with contextlib.suppress(EOFError):  # the parent is gone, and the inbox thread has not noticed yet
            while True:
                message, fds = self.inbox.get()
                self._obey(message, fds)
        os._exit(1)

    def _obey(self, message: dict[str, Any], fds: list[int]) -> None:
        action: Callable[..., None] = getattr(self, "do_" + message.pop("do"))
        try:
            action(*fds, **message)
        except Aborted:
            self.channel.send({"event": "aborted"})
        except Exception as error:
            kind = type(error).__name__
            text = {"message": str(error), "traceback": traceback.format_exc()}
            self.channel.send({"event": "error", "kind": kind, **text})

    def _read(self) -> None:
        parent = os.getppid()
        ready = select.poll()
        ready.register(self.channel.fileno(), select.POLLIN)
        try:
            while True:
                # A fork of the parent holds its end of the channel open, so that alone is not enough.
                while not ready.poll(1000):
                    if os.getppid() != parent:
                        raise EOFError
                self.inbox.put(self.channel.receive())
        except (EOFError, OSError):
            os._exit(1)  # the parent is gone: nobody will read a result, whatever the main thread is at

    def do_start(
        self, *fds: int, rank: int, seat: int, workers: int, cpus: list[int], threads: int, kernels: str,
        barrier: dict[str, Any], control: list,
    ) -> None:  # fmt: skip
        """Bind to cores before any memory is touched or thread started; fds: the control segment, the barrier's.

        Said again when the crew changes: then all orders follow anew.
        """
        self.trainer = None
        for calls in (self.predictors, self.unlinked, self.uncompiled):
            calls.clear()
        topology.bind(cpus)
        for kind in (np.float16, np.float32, np.float64, np.longdouble):
            np.finfo(kind)  # while there are subnormals: NumPy looks at them once, and some warn if they are zero
        native.set_flush_to_zero(True)  # here and in the threads that start from here, never in the user's process
        self.rank, self.seat, self.workers = rank, seat, workers
        self.backend = backends.select(kernels, threads)
        if self.backend.name == "numpy":
            import threadpoolctl

            threadpoolctl.threadpool_limits(1, user_api="blas")
            np.seterr(all="ignore")  # what is not finite shows in the loss, and is reported once
        self.do_segment(fds[0], name="control", spec=control)
        self.barrier = open_barrier(barrier, rank, self.arrays()["barrier"], fds[1:])
        self.channel.send({"event": "started", "backend": self.backend.name, "reason": self.backend.reason})

    def do_segment(self, fd: int, *, name: str, spec: list) -> None:
        """Map a segment, in place of an older one of that name: "control", "state", "batch", a data set, an output."""
        segment = Segment.attach(fd, spec)
        if name in self.segments:
            self.segments[name].close()
        self.segments[name] = segment

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of training by name, see `exchange`; of what is kept for each worker, this one's."""
        parts = (self.segments[name].arrays for name in ("control", "state", "batch") if name in self.segments)
        arrays = {name: array for part in parts for name, array in part.items()}
        return arrays | {name: arrays[name][self.seat] for name in ("times", "beats")}

    def do_forget(self, *, name: str) -> None:
        """Give a segment up."""
        self.segments.pop(name).close()

    def do_import_layers(self, *, layers: dict[str, str], script: str | None) -> None:
        """Import the user's own layers that a net has."""
        self.user_layers |= import_layers(layers, script)

    def do_prepare_training(
        self, *, net: dict, input_shape: list[int], loss: dict, optimizer: dict, chunk: int, batch: int, strategy: str,
        balance: str, source: str, scaling: list, fuse: bool, precision: str,
    ) -> None:  # fmt: skip
        """Plan and bind the training of a net; the state and batch segments are there."""
        arrays = self.arrays()
        plan = self._plan(net, input_shape, chunk, batch, loss, fuse, precision)

        def bind(rank: int, workers: int) -> Sync:
            what = plan, optim.build(optimizer), arrays, np.dtype(source), scaling
            return STRATEGIES[strategy](*what, rank, workers, self.barrier, get_balancer(balance))

        self.trainer = bind(self.rank, self.workers)
        self.unlinked += self.trainer.calls()
        self.uncompiled += bind(0, 1).calls()  # a single worker needs all that any needs: the same list for every one

    def do_prepare_prediction(
        self, *, net: dict, input_shape: list[int], chunk: int, source: str, scaling: list, fuse: bool, precision: str
    ) -> None:
        """Plan and bind prediction for images stored as `source`."""
        plan = self._plan(net, input_shape, chunk, chunk, None, fuse, precision)
        arrays = self.arrays()
        state = arrays["average"] if arrays["average"].size else arrays["state"]
        runner = self.predictors[source] = ChunkRunner(plan, state, {}, np.dtype(source), scaling)
        self.unlinked += runner.calls()
        self.uncompiled += runner.calls()

    def _plan(
        self, net: dict, input_shape: list[int], chunk: int, batch: int, loss: dict | None, fuse: bool, precision: str
    ) -> Plan:
        layers, of_loss = build(net, self.user_layers), build_loss(loss) if loss else None
        shape = tuple(input_shape)
        return make_plan(layers, shape, chunk, batch, loss=of_loss, fuse=fuse, precision=precision)

    def do_compile(self) -> None:
        """Compile this worker's share of the kernels; the others find them in the cache on disk."""
        shares = deal(self.uncompiled, self.workers)
        self.uncompiled.clear()
        beats = self.arrays()["beats"]
        for call in shares[self.rank]:
            call.link(self.backend)
            beats[CHUNKS] += 1
            self.channel.send({"event": "compiled", "kernels": sum(map(len, shares))})
        self.channel.send({"event": "done"})

    def do_link(self) -> None:
        """Give every call its code."""
        self._link()
        self.channel.send({"event": "done"})

    def _link(self) -> None:
        beats = self.arrays()["beats"]
        while self.unlinked:
            self.unlinked.pop().link(self.backend)
            beats[CHUNKS] += 1

    def do_train(self, *, data: str, skip: bool, **job: Any) -> None:
        """One epoch over a data set, see `Job`; skip as in `Sync.epoch`."""
        assert self.trainer is not None
        self._link()  # if this worker has joined, or has another rank, since all were
        self.trainer.epoch(Job(self.segments[data].arrays, **job), skip)
        self.channel.send({"event": "done"})

    def do_diagnose(self, *, data: str, step: int, **job: Any) -> None:
        """Where in a step of the epoch the first number was not finite; worker 0 finds it."""
        assert self.trainer is not None
        found = None
        if self.rank == 0:
            found = first_not_finite(self.trainer, self.backend, Job(self.segments[data].arrays, **job), step)
        self.channel.send({"event": "done", **(found or {})})

    def do_predict(self, *, data: str, output: str, samples: int) -> None:
        """This worker's part of the net's outputs for the first samples of a data set."""
        x, order = self.segments[data]["x"], self.segments[data]["order"]
        runner, result = self.predictors[x.dtype.str], self.segments[output]["output"]
        chunk = runner.plan.chunk
        chunks = -(-samples // chunk)
        step, beats = int(self.segments["control"]["status"][STEP]), self.arrays()["beats"]
        self._link()
        for index in range(chunks * self.rank // self.workers, chunks * (self.rank + 1) // self.workers):
            first = index * chunk
            n = min(chunk, samples - first)
            runner.load(n, x, order, first)
            result[first : first + n] = runner.predict(step, n).reshape(n, -1)
            beats[CHUNKS] += 1
        self.channel.send({"event": "done"})


def main() -> None:
    """Entry point of the process; the last arguments are the descriptors for last words and of the channel."""
    faulthandler.enable(int(sys.argv[-2]))  # where the parent looks for the traceback of a crash
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # Kernels are as fast without LLVM's later passes, which take a tenth of the time to compile.
    os.environ.setdefault("NUMBA_OPT", "1")
    Worker(Channel(int(sys.argv[-1]))).serve()
