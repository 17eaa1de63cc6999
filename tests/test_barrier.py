"""The barrier between real processes: nobody passes early, an abort reaches everyone, and a reset makes it new."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from corenet.errors import ConfigError
from corenet.kernels import native
from corenet.parallel.barrier import Aborted, AtomicBarrier, Control, PipeBarrier, PipeControl, open_barrier
from corenet.parallel.channel import Channel
from corenet.parallel.memory import Segment

WORKER = str(Path(__file__).with_name("barrier_worker.py"))
ENDLESS = 10**9

needs_c = pytest.mark.skipif(not native.available, reason=native.reason)
KINDS = [pytest.param("atomic", marks=needs_c), "pipe"]


class Team:
    """n worker processes at one barrier, and the parent's side of it."""

    def __init__(self, kind: str, n: int, spins: int = 0):
        self.n = n
        self.segment = Segment.create({"barrier": ((AtomicBarrier.WORDS,), np.uint32), "slots": ((2, n), np.int64)})
        self.control: Control
        if kind == "atomic":
            self.control = AtomicBarrier(self.segment["barrier"], n, spins)
        else:
            self.control = PipeControl(n)
        self.processes: list = [None] * n
        self.channels: list = [None] * n
        for rank in range(n):
            self.start(rank)
        for channel in self.channels:
            channel.receive()

    def start(self, rank: int) -> None:
        ours, theirs = Channel.pair()
        command = [sys.executable, "-W", "error", WORKER, str(theirs.fileno())]
        self.processes[rank] = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        setup = {"rank": rank, "barrier": self.control.spec, "segment": self.segment.spec}
        ours.send(setup, [self.segment.fd, *self.control.fds(rank)])
        self.channels[rank] = ours

    def ask(self, rank: int, count: int, seed: int = 0, dawdle: float = 0.0) -> None:
        self.channels[rank].send({"count": count, "seed": seed + rank, "dawdle": dawdle})

    def answers(self, ranks) -> list[tuple[str, int]]:
        replies = [self.channels[rank].receive()[0] for rank in ranks]
        return [(reply["outcome"], reply["passed"]) for reply in replies]

    def run(self, count: int, seed: int = 0, dawdle: float = 0.0) -> list[tuple[str, int]]:
        for rank in range(self.n):
            self.ask(rank, count, seed, dawdle)
        return self.answers(range(self.n))

    def close(self) -> None:
        self.control.abort()
        for channel in self.channels:
            channel.close()
        for process in self.processes:
            assert process.wait(30) in (0, -9)
        self.control.close()
        self.segment.close()


@pytest.fixture
def team():
    teams: list[Team] = []

    def start(*args, **kwargs) -> Team:
        teams.append(Team(*args, **kwargs))
        return teams[-1]

    yield start
    for each in teams:
        each.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_nobody_passes_early(team, kind, n):
    rounds = 5000 if kind == "atomic" else 1500
    team = team(kind, n)
    assert team.run(rounds) == [("done", rounds)] * n
    # Again with workers that come late at random, so that the others get to the end of their patience: to sleep.
    assert team.run(300, seed=7, dawdle=0.3) == [("done", 300)] * n


@needs_c
def test_nobody_passes_early_while_spinning(team):
    team = team("atomic", 2, spins=2000)
    assert team.run(20000) == [("done", 20000)] * 2
    assert team.run(300, seed=3, dawdle=0.3) == [("done", 300)] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_abort_wakes_all_who_wait_and_a_reset_makes_it_new(team, kind):
    team = team(kind, 3)
    for absent in range(3):
        waiting = [rank for rank in range(3) if rank != absent]
        for rank in waiting:
            team.ask(rank, 5)
        time.sleep(0.15)  # long enough to be asleep in the kernel; what is asserted does not depend on it
        team.control.abort()
        assert team.answers(waiting) == [("aborted", 0)] * 2
        # It stays aborted for the one who comes late, and for those who come again.
        assert team.run(5) == [("aborted", 0)] * 3
        team.control.reset()
        assert team.run(200) == [("done", 200)] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_aborts_at_random_moments(team, kind):
    dice = random.Random(11)
    team = team(kind, 3)
    for _ in range(40):
        for rank in range(3):
            team.ask(rank, ENDLESS)
        time.sleep(dice.random() / 200)
        team.control.abort()
        outcomes, passed = zip(*team.answers(range(3)), strict=True)
        assert outcomes == ("aborted",) * 3
        # With atomics a round is passed by all or by none. With pipes an abort may split one round.
        assert max(passed) - min(passed) <= (0 if kind == "atomic" else 1)
        team.control.reset()
    assert team.run(200) == [("done", 200)] * 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_worker_is_replaced(team, kind, victim):
    team = team(kind, 3)
    for rank in range(3):
        team.ask(rank, ENDLESS, dawdle=0.01)
    time.sleep(0.05)
    team.processes[victim].kill()
    team.processes[victim].wait()
    team.control.abort()
    others = [rank for rank in range(3) if rank != victim]
    assert [outcome for outcome, _ in team.answers(others)] == ["aborted"] * 2
    team.channels[victim].close()
    team.control.reset()
    team.start(victim)
    team.channels[victim].receive()
    assert team.run(200) == [("done", 200)] * 3


def test_the_end_of_the_parent_ends_a_wait_at_pipes(team):
    team = team("pipe", 3)
    for rank in range(3):
        team.ask(rank, ENDLESS)
    control, team.control = team.control, PipeControl(1)  # for the fixture's clean-up
    control.close()  # what the kernel does when the parent dies
    assert [outcome for outcome, _ in team.answers(range(3))] == ["aborted"] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_worker_never_waits(kind):
    with Segment.create({"words": ((AtomicBarrier.WORDS,), np.uint32)}) as segment:
        control = AtomicBarrier(segment["words"], 1) if kind == "atomic" else PipeControl(1)
        fds = [os.dup(fd) for fd in control.fds(0)]
        barrier = open_barrier(control.spec, 0, segment["words"], fds)
        for _ in range(3):
            barrier.wait()
        control.abort()
        for _ in range(2):
            with pytest.raises(Aborted):
                barrier.wait()
        control.reset()
        barrier.wait()
        for side in (barrier, control, barrier, control):  # closing twice is harmless
            side.close()


@needs_c
def test_words_are_checked_before_c_touches_them():
    words = np.zeros(2 * AtomicBarrier.WORDS, np.uint32)
    start = -words.ctypes.data % 64 // 4
    for bad in (words[start : start + 10], words[start + 1 :], words[::2]):
        with pytest.raises(ConfigError, match="AtomicBarrier"):
            AtomicBarrier(bad, 2)


@needs_c
def test_the_barrier_in_c_has_the_size_that_python_allots():
    assert native.lib.corenet_barrier_size() == 4 * AtomicBarrier.WORDS


def test_without_the_c_library_pipes_are_chosen(monkeypatch):
    from corenet.parallel import barrier

    words = np.zeros(AtomicBarrier.WORDS, np.uint32)
    monkeypatch.setattr(native, "available", False)
    control = barrier.create_barrier(2, words)
    assert isinstance(control, PipeControl)
    fds = [os.dup(fd) for fd in control.fds(1)]
    worker = open_barrier(control.spec, 1, words, fds)
    assert isinstance(worker, PipeBarrier)
    worker.close()
    control.close()
    with pytest.raises(ConfigError, match="C library"):
        AtomicBarrier(words, 2)
