"""What watching a run costs: python bench/reliability.py [NET …]

In every step a worker counts its chunks and meetings, and looks whether its gradient is finite; that is all of the
machinery of recovery that an undisturbed run has in its workers. Both are timed by themselves, with one worker, and
compared with the time of that worker's step, medians of several.
"""

from __future__ import annotations

import statistics
import sys
from time import perf_counter

import numpy as np

import corenet
from corenet.engine import make_plan
from corenet.models import INPUT_SHAPES
from corenet.optim import SGD
from corenet.parallel.reduction import _finite
from corenet.parallel.watch import CHUNKS, MEETINGS
from corenet.train.chunking import choose_chunk

NETS, BATCH, STEPS, REPEATS = ("lenet5", "keras_mnist", "cifar10_quick", "vgg_small", "resnet20"), 128, 20, 5


def step_seconds(name: str) -> float:
    """Seconds of a step on one worker."""
    generator = np.random.default_rng(0)
    x = generator.integers(0, 256, (STEPS * BATCH, *INPUT_SHAPES[name])).astype(np.uint8)
    y = generator.integers(0, 10, len(x))
    with corenet.Trainer(corenet.models.get(name), SGD(1e-3), workers=1) as trainer:
        history = trainer.fit((x, y), epochs=REPEATS + 1, batch_size=BATCH, callbacks=())
    return statistics.median(history["seconds"][1:]) / STEPS


def watching_seconds(name: str) -> float:
    """Seconds of one step's counting and looking."""
    net, shape = corenet.models.get(name), INPUT_SHAPES[name]
    plan = make_plan(net, shape, choose_chunk(make_plan(net, shape, 1), BATCH), BATCH)
    gradient, beats = np.ones(plan.layout.size, np.float32), np.zeros((1, 2), np.int64)[0]
    found = []
    for _ in range(50):
        begin = perf_counter()
        _finite(gradient)
        for _ in range(plan.chunks):
            beats[CHUNKS] += 1
        for _ in range(2 + len(plan.meets)):
            beats[MEETINGS] += 1
        found.append(perf_counter() - begin)
    return statistics.median(found)


def main(names: list[str]) -> None:
    """A line for each net."""
    for name in names or NETS:
        step, watching = step_seconds(name), watching_seconds(name)
        print(
            f"{name:14} step {step * 1e3:8.2f} ms, watching {watching * 1e6:6.1f} us: {watching / step:.3%}", flush=True
        )


if __name__ == "__main__":
    main(sys.argv[1:])
