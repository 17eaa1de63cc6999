"""What each step of a net's training takes, on one core, by itself: least times over some repetitions.

    python bench/net_steps.py NET … [--batch 128] [--repetitions 40] [--kernels numba] [--no-fuse]

One chunk goes through the plan; what a whole step adds are the products of dense weights, the optimizer and meetings.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import numpy as np

from corenet import models
from corenet.bench.layers import NETS
from corenet.engine import Plan, Program, initial_state, make_plan, private_spaces
from corenet.kernels.backend import select
from corenet.nn import CrossEntropy
from corenet.train.chunking import choose_chunk


def planned(model: str, batch: int, fuse: bool) -> Plan:
    """The net's plan for a chunk of such batches."""
    net, shape = models.get(model), models.INPUT_SHAPES[model]
    chunk = choose_chunk(make_plan(net, shape, 16, batch, loss=CrossEntropy()), batch)
    return make_plan(net, shape, chunk, batch, loss=CrossEntropy(), fuse=fuse)


def times_of(plan: Plan, repetitions: int, kernels: str) -> list[float]:
    """Seconds of each step, one after the other as in training."""
    shared = {name: np.zeros(plan.bytes[name], np.uint8) for name in ("panels", "common")}
    state = initial_state(plan, 0).view(np.uint8)
    program = Program(plan, {**private_spaces(plan), **shared, "state": state})
    calls, backend = list(program.calls()), select(kernels)
    for call in calls:
        call.link(backend)
    program.images[:] = np.random.default_rng(0).standard_normal(program.images.shape)
    program.scale[:] = 1 / plan.batch
    least = [float("inf")] * len(calls)
    for _ in range(repetitions):
        for number, call in enumerate(calls):
            begin = time.perf_counter()
            call(plan.chunk)
            least[number] = min(least[number], time.perf_counter() - begin)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="+", choices=list(NETS), metavar="NET")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--kernels", default="numba")
    parser.add_argument("--no-fuse", action="store_true", help="steps as layers plan them")
    options = parser.parse_args()
    for model in options.nets:
        plan = planned(model, options.batch, not options.no_fuse)
        steps = [step for step in (*plan.forward, *plan.backward) if hasattr(step, "operation")]
        times, total = times_of(plan, options.repetitions, options.kernels), Counter[str]()
        whole = sum(times)
        print(f"{model}, chunks of {plan.chunk}: {plan.chunk / whole:,.0f} images/s in kernels")
        for step, seconds in zip(steps, times, strict=True):
            total[step.operation.name] += seconds
            print(f"  {step.layer or ''!s:28} {step.operation.name:36}{seconds * 1e6:9.1f} µs{seconds / whole:7.1%}")
        for name, seconds in total.most_common():
            print(f"  {'':28} {name:36}{seconds * 1e6:9.1f} µs{seconds / whole:7.1%} in all")


if __name__ == "__main__":
    main()
