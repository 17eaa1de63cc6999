"""The protocol of csrc/barrier.c, modelled step by step, and every order in which its steps can happen.

A model is a few rules: what a process at some point of the program does next to the shared words. All states that any
interleaving reaches are explored, with an abort and a killed process at any moment. Sleepers have no time-out here, so
a lost wake-up shows as a state from which nothing leads to the end.

Processors' reordering of memory accesses is not modelled; csrc/tests/barrier_stress.c looks for that with the thread
sanitizer.
"""

from collections import deque
from typing import NamedTuple

import pytest


class Shared(NamedTuple):
    generation: int = 0
    aborted: bool = False
    arrived: int = 0
    sleepers: int = 0


class Process(NamedTuple):
    at: str = "enter"  # the point of the program; the last ones are "done" (all rounds), "stopped" and "dead"
    seen: int = 0  # the generation at the entry
    entered: int = 0  # rounds it has arrived in
    passed: int = 0  # rounds it has passed


class State(NamedTuple):
    shared: Shared
    processes: tuple[Process, ...]
    aborts: int = 1  # how often the parent may still abort
    kills: int = 1  # how many processes may still be killed


class Protocol:
    """corenet_barrier_wait: the method `x` is what a process at point "x" does, in one indivisible step."""

    def __init__(self, n: int, rounds: int):
        self.n, self.rounds = n, rounds

    def enter(self, s: Shared, p: Process):
        return s, p._replace(at="stopped") if s.aborted else p._replace(at="arrive", seen=s.generation)

    def arrive(self, s: Shared, p: Process):
        s = s._replace(arrived=s.arrived + 1)
        return s, p._replace(at="clear" if s.arrived == self.n else "look", entered=p.entered + 1)

    def clear(self, s: Shared, p: Process):
        return s._replace(arrived=0), p._replace(at="release")

    def release(self, s: Shared, p: Process):  # the compare and swap: it fails if the word has the abort bit
        if s.aborted:
            return s, p._replace(at="stopped")
        return s._replace(generation=s.generation + 1), p._replace(at="count_sleepers")

    def count_sleepers(self, s: Shared, p: Process):
        return s, p._replace(at="wake") if s.sleepers else self.passed(p)

    def wake(self, s: Shared, p: Process):  # the others' part of it: see wakes_others
        return s, self.passed(p)

    def look(self, s: Shared, p: Process):
        if s.generation != p.seen:
            return s, self.passed(p)
        return s, p._replace(at="stopped" if s.aborted else "count_me")

    def count_me(self, s: Shared, p: Process):
        return s._replace(sleepers=s.sleepers + 1), p._replace(at="sleep")

    def sleep(self, s: Shared, p: Process):  # the kernel compares and sleeps in one step
        unchanged = s.generation == p.seen and not s.aborted
        return s, p._replace(at="asleep" if unchanged else "uncount_me")

    def asleep(self, s: Shared, p: Process):
        return None  # until somebody wakes it

    def uncount_me(self, s: Shared, p: Process):
        return s._replace(sleepers=s.sleepers - 1), p._replace(at="look")

    def passed(self, p: Process) -> Process:
        passed = p.passed + 1
        return p._replace(at="done" if passed == self.rounds else "enter", passed=passed)

    def wakes_others(self, at: str) -> bool:
        return at == "wake"

    abort_wakes = True

    def abort(self, s: Shared) -> Shared:
        return s._replace(aborted=True)


ENDED = ("done", "stopped", "dead")


def awake(processes: tuple[Process, ...]) -> tuple[Process, ...]:
    return tuple(p._replace(at="uncount_me") if p.at == "asleep" else p for p in processes)


def successors(protocol: Protocol, state: State):
    for i, process in enumerate(state.processes):
        if process.at in ENDED:
            continue
        before, after = state.processes[:i], state.processes[i + 1 :]
        step = getattr(protocol, process.at)(state.shared, process)
        if step is not None:
            shared, moved = step
            if protocol.wakes_others(process.at):
                before, after = awake(before), awake(after)
            yield state._replace(shared=shared, processes=(*before, moved, *after))
        if state.kills:
            dead = process._replace(at="dead")
            yield state._replace(processes=(*before, dead, *after), kills=state.kills - 1)
    if state.aborts:
        processes = awake(state.processes) if protocol.abort_wakes else state.processes
        yield State(protocol.abort(state.shared), processes, state.aborts - 1, state.kills)
    elif all(process.at in ENDED for process in state.processes) and state.shared.aborted:
        # The parent resets, replaces the dead, and everybody starts again, undisturbed this time.
        shared = Shared(generation=state.shared.generation)
        yield State(shared, (Process(),) * protocol.n, aborts=0, kills=0)


def check(protocol: Protocol, aborts: int, kills: int) -> str:
    """ "correct", or what is wrong with the protocol."""
    start = State(Shared(), (Process(),) * protocol.n, aborts, kills)
    reached_from: dict[State, list[State]] = {start: []}
    ends = []
    queue = deque([start])
    while queue:
        state = queue.popleft()
        processes = state.processes
        if max(p.passed for p in processes) > min(p.entered for p in processes):
            return "somebody passed early"
        if all(p.at in ENDED for p in processes) and len({p.passed for p in processes if p.at != "dead"}) > 1:
            return "a round was passed by some, not by all"
        if all(p.at == "done" for p in processes):
            ends.append(state)
        for following in successors(protocol, state):
            if following not in reached_from:
                reached_from[following] = []
                queue.append(following)
            reached_from[following].append(state)
    # Whatever has happened so far, the end must still be within reach: no deadlock, no sleep that nobody ends.
    saved, queue = set(ends), deque(ends)
    while queue:
        for earlier in reached_from[queue.popleft()]:
            if earlier not in saved:
                saved.add(earlier)
                queue.append(earlier)
    return "correct" if len(saved) == len(reached_from) else "somebody waits for ever"


@pytest.mark.parametrize(("n", "rounds", "aborts", "kills"), [(2, 3, 1, 1), (3, 3, 0, 0), (3, 3, 1, 1), (4, 2, 0, 0)])
def test_every_interleaving_is_correct(n, rounds, aborts, kills):
    assert check(Protocol(n, rounds), aborts, kills) == "correct"


class CountsOneTooFew(Protocol):
    def arrive(self, s, p):
        s = s._replace(arrived=s.arrived + 1)
        return s, p._replace(at="clear" if s.arrived == self.n - 1 else "look", entered=p.entered + 1)


class ClearsAfterTheRelease(Protocol):
    def arrive(self, s, p):
        s, p = super().arrive(s, p)
        return s, p._replace(at="release") if p.at == "clear" else p

    def release(self, s, p):
        s, p = super().release(s, p)
        return s, p._replace(at="clear") if p.at == "count_sleepers" else p

    def clear(self, s, p):
        return s._replace(arrived=0), p._replace(at="count_sleepers")


class ReleasesWithoutComparing(Protocol):
    def release(self, s, p):
        return s._replace(generation=s.generation + 1), p._replace(at="count_sleepers")

    def look(self, s, p):  # and an abort that is a word of its own, looked at first
        return (s, p._replace(at="stopped")) if s.aborted else super().look(s, p)


class CountsSleepersBeforeTheRelease(Protocol):
    def clear(self, s, p):
        return s._replace(arrived=0), p._replace(at="release_and_wake" if s.sleepers else "release_only")

    def release_only(self, s, p):
        return (s, p._replace(at="stopped")) if s.aborted else (s._replace(generation=s.generation + 1), self.passed(p))

    def release_and_wake(self, s, p):
        return self.release_only(s, p)

    def wakes_others(self, at):
        return at == "release_and_wake"


class SleepsWithoutComparing(Protocol):
    def sleep(self, s, p):
        return s, p._replace(at="asleep")


class AbortsWithoutWaking(Protocol):
    abort_wakes = False


@pytest.mark.parametrize(
    ("broken", "verdict"),
    [
        (CountsOneTooFew, "somebody passed early"),
        (ClearsAfterTheRelease, "somebody waits for ever"),
        (ReleasesWithoutComparing, "a round was passed by some, not by all"),
        (CountsSleepersBeforeTheRelease, "somebody waits for ever"),
        (SleepsWithoutComparing, "somebody waits for ever"),
        (AbortsWithoutWaking, "somebody waits for ever"),
    ],
)
def test_a_broken_protocol_is_caught(broken, verdict):
    assert check(broken(2, 2), aborts=1, kills=0) == verdict
