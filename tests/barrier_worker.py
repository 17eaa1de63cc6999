"""A worker process for tests/test_barrier.py: `python barrier_worker.py FD` obeys what comes over that channel."""

import random
import sys
import time

from corenet.parallel.barrier import Aborted, Barrier, open_barrier
from corenet.parallel.channel import Channel
from corenet.parallel.memory import Segment


def rounds(barrier: Barrier, slots, rank: int, count: int, seed: int, dawdle: float) -> dict:
    """Do `count` rounds; before each, a share `dawdle` of the time, be late by up to a millisecond.

    Everyone writes the round's number before the barrier, and after it must find that everyone has. There are two rows
    of slots, taken in turn, so that the next round's writes do not disturb this round's readers.
    """
    dice = random.Random(seed)
    for round in range(count):
        if dice.random() < dawdle:
            time.sleep(dice.random() / 1000)
        slots[round % 2, rank] = round
        try:
            barrier.wait()
        except Aborted:
            return {"passed": round, "outcome": "aborted"}
        if (slots[round % 2] != round).any():
            return {"passed": round, "outcome": f"passed early: {slots[round % 2].tolist()} in round {round}"}
    return {"passed": count, "outcome": "done"}


def main() -> None:
    with Channel(int(sys.argv[1])) as channel:
        setup, fds = channel.receive()
        segment = Segment.attach(fds[0], setup["segment"])
        barrier = open_barrier(setup["barrier"], setup["rank"], segment["barrier"], fds[1:])
        channel.send({"ready": True})
        while True:
            try:
                task, _ = channel.receive()
            except EOFError:
                break
            channel.send(rounds(barrier, segment["slots"], setup["rank"], **task))
        barrier.close()
        segment.close()


if __name__ == "__main__":
    main()
