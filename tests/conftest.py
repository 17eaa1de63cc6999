"""What tests of training share: small data, workers that live on, a step in one process, whole programs."""

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from cli_command import heed_ctrl_c

os.environ.setdefault("NUMBA_OPT", "1")  # as workers do, for kernels that tests compile themselves

import corenet
from corenet import nn, optim
from corenet.engine import make_plan
from corenet.engine.planner import Plan
from corenet.engine.program import initial_state
from corenet.kernels import backend
from corenet.parallel import exchange
from corenet.parallel.balance import Balancer
from corenet.parallel.barrier import Aborted, create_barrier
from corenet.parallel.crew import Crew
from corenet.parallel.memory import Segment
from corenet.parallel.slices import Job
from corenet.parallel.sync import Sync

CLASSES = 4


@pytest.fixture(scope="session", autouse=True)
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests run in an empty folder: `python -c` looks for modules in the current one first, and in that of a checkout
    it would find the sources, without the C library, instead of what was installed.
    """
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("nowhere"))
    yield
    os.chdir(before)


def images(n: int = 101, dtype: Any = np.uint8, seed: int = 0, shape: tuple[int, ...] = (6, 6, 1)) -> tuple:
    """Images of noise, a bright corner telling the class, and labels."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, CLASSES, n)
    x = generator.integers(0, 100, (n, *shape)).astype(np.uint8)
    for corner in range(CLASSES):
        h, w = divmod(corner, 2)
        x[y == corner, 3 * h : 3 * h + 3, 3 * w : 3 * w + 3] += 100
    return (x, y) if dtype == np.uint8 else ((x / np.float32(64) - 1).astype(dtype), y)


@pytest.fixture(scope="module")
def crews() -> Iterator[Callable[..., Crew]]:
    """A function from a layout to workers, which live until the module's last test: starting them takes longest."""
    started: dict[tuple, Crew] = {}

    def get(layout: Any, kernels: str) -> Crew:
        key = layout.workers, layout.threads, kernels
        if key not in started or started[key].closed:
            started[key] = Crew(layout, kernels)
        return started[key]

    yield get
    for crew in started.values():
        crew.close()


@pytest.fixture
def trainer(crews) -> Iterator[Callable[..., corenet.Trainer]]:
    """A function that makes a Trainer on workers that are there already: only the last one made on them may be used."""
    made: list[corenet.Trainer] = []

    def make(net: nn.Layer, optimizer: optim.Optimizer | None = None, **settings: Any) -> corenet.Trainer:
        settings = {"workers": 1, "share_cores": True, **settings}
        trainer = corenet.Trainer(net, optimizer, **settings)
        trainer._crew = crews(trainer.layout, trainer.kernels)
        made.append(trainer)
        return trainer

    yield make
    for trainer in made:
        trainer._crew = trainer._session = None  # not closed: the next test uses the workers


class ThreadBarrier:
    """Workers as threads of this process meet here."""

    def __init__(self, n: int):
        self._barrier = threading.Barrier(n)

    def wait(self) -> None:
        try:
            self._barrier.wait(30)
        except threading.BrokenBarrierError:
            raise Aborted from None


class Ranks:
    """What the workers do in an epoch, in this process: `Sync` objects over the same segments, one thread for each."""

    def __init__(
        self, net: nn.Layer, optimizer: optim.Optimizer, x: np.ndarray, y: np.ndarray, *, chunk: int, batch: int,
        workers: int = 1, balancer: Balancer, kernels: str = "numba",
    ):  # fmt: skip
        self.x, self.y, self.optimizer = x, np.asarray(y, np.int64), optimizer
        self.plan: Plan = make_plan(net, x.shape[1:], chunk, batch, loss=nn.CrossEntropy())
        fields = {
            **exchange.control_fields(workers),
            **exchange.state_fields(self.plan, optimizer),
            **exchange.batch_fields(self.plan),
        }
        self.arrays = Segment.create(fields).arrays
        self.arrays["status"][exchange.FAILED_STEP] = -1
        self.arrays["state"][:] = initial_state(self.plan, seed=1)
        barrier = create_barrier(1, self.arrays["barrier"]) if workers == 1 else ThreadBarrier(workers)
        self.ranks: list[Sync] = []
        for rank in range(workers):
            scaling = ((0.0,), (1.0,))
            who = rank, workers, barrier, balancer
            own = {name: self.arrays[name][rank] for name in ("times", "beats")}
            sync = Sync(self.plan, optimizer, self.arrays | own, x.dtype, scaling, *who)  # type: ignore[arg-type]
            for call in sync.calls():
                call.link(backend.select(kernels))
            self.ranks.append(sync)

    def epoch(self, order: Sequence[int] | None = None) -> None:
        """One epoch in this order, on all ranks at once."""
        order = np.arange(len(self.x)) if order is None else np.asarray(order)
        data = {"x": self.x, "y": self.y[:, None], "weights": np.ones(len(self.x)), "order": order}
        data["rates"] = np.full(len(self.x), self.optimizer.lr.rate(0))
        until = self.step + -(-len(order) // self.plan.batch)
        job = Job(data, epoch=0, first_step=self.step, until=until, seed=0, shift=0, flip=False)
        threads = [threading.Thread(target=rank.epoch, args=(job,)) for rank in self.ranks[1:]]
        for thread in threads:
            thread.start()
        self.ranks[0].epoch(job)
        for thread in threads:
            thread.join()

    @property
    def step(self) -> int:
        return int(self.arrays["status"][exchange.STEP])

    def state(self) -> dict[str, np.ndarray]:
        return self.plan.layout.arrays(self.arrays["state"][self.step & 1])

    def gradient(self) -> dict[str, np.ndarray]:
        return self.plan.layout.arrays(self.arrays["gradient"])


PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
import corenet, corenet.train
from corenet import nn, optim

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start jobs in the background with it ignored
x = (np.arange(101 * 36) % 251).astype(np.uint8).reshape(101, 6, 6, 1)
y = np.arange(101) % 3

def make(**settings):
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    return corenet.Trainer(net, optim.SGD(0.1), **{"workers": 2, "share_cores": True, "kernels": "numpy", **settings})

def fit(trainer, **settings):
    return trainer.fit((x, y), **{"batch_size": 16, "callbacks": (), **settings})

def pids(trainer):
    return [process.pid for process in trainer._crew.processes]

class Tell(corenet.train.Callback):  # that training is under way
    told = False
    def on_progress(self, progress):
        if not self.told:
            self.told = True
            print("training", *pids(trainer), flush=True)

def train_for_ever():  # one epoch, which takes far longer than the test waits
    trainer.fit((np.repeat(x, 2000, 0), np.repeat(y, 2000)), batch_size=1, callbacks=[Tell()])
"""


class Program:
    """A Python program of its own, and all processes it starts, which carry a mark that tells them from others."""

    def __init__(
        self, code: str, *, flags: Sequence[str] = ("-W", "error"), how: str = "file", folder: Path,
        env: dict[str, str | None] | None = None, group: bool = False, prelude: str = PRELUDE,
    ):  # fmt: skip
        self.mark = uuid.uuid4().hex
        self.shm = shm()
        environment = {k: v for k, v in {**os.environ, **(env or {})}.items() if v is not None}
        environment["CORENET_TEST_MARK"] = self.mark
        source = prelude + code
        script = folder / f"script_{self.mark}.py"
        script.write_text(source)
        arguments = {"file": [str(script)], "stdin": ["-"], "-c": ["-c", source]}[how]
        self.process = subprocess.Popen(
            [sys.executable, *flags, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=group,
            preexec_fn=heed_ctrl_c,
        )
        if how == "stdin":
            self.process.stdin.write(source)
            self.process.stdin.close()
            self.process.stdin = None

    def line(self) -> list[str]:
        """The words of the next line it prints."""
        return self.process.stdout.readline().split()

    def end(self, timeout: float = 60) -> tuple[int, str, str]:
        """Wait for its end: exit code, the rest of its output, what it wrote to standard error."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            pytest.fail(f"the program did not end within {timeout} s; it wrote\n{out}\n{err}")
        return self.process.returncode, out, err

    def succeed(self) -> str:
        """Wait for its end, which must be good: nothing on standard error, nobody and nothing left; its output."""
        status, out, err = self.end()
        assert err == "", err
        assert status == 0
        self.leave_nothing()
        return out

    def leave_nothing(self) -> None:
        """All its processes end within five seconds, and no shared memory is left."""
        assert self.survivors() == []
        assert shm() == self.shm

    def survivors(self, within: float = 5) -> list[psutil.Process]:
        """Processes with its mark, and children that nobody has waited for, after that many seconds at most."""
        end = time.monotonic() + within
        while (alive := self._marked()) and time.monotonic() < end:
            time.sleep(0.02)
        return alive

    def _marked(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and process.environ().get("CORENET_TEST_MARK") == self.mark:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def kill(self) -> None:
        """End whatever is left, so that a failed test harms no other."""
        for process in self._marked():
            process.kill()
        if self.process.poll() is None:
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self.process.wait()


def shm() -> list[str]:
    """What is in /dev/shm."""
    return sorted(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else []


@pytest.fixture
def program(tmp_path) -> Iterator[Callable[..., Program]]:
    """A function that starts a program; whatever it leaves behind is ended after the test."""
    started: list[Program] = []

    def start(code: str, **settings: Any) -> Program:
        started.append(Program(code, **{"folder": tmp_path, **settings}))
        return started[-1]

    yield start
    for one in started:
        one.kill()
