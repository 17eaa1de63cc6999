"""What denormal numbers cost: training in a worker on images of 1e-40 against images of 1, interleaved in one run.

    python bench/denormals.py [--rounds 9] [--images 4096] [--batch 64]

A worker counts denormals as 0, so the ratio should be near 1, and at most 2. For comparison the same steps run in this
process, which does not: there the ratio is what the switch saves on this processor (nothing on AMD's Zen 4).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from corenet import Trainer, optim
from corenet.datasets import Dataset, from_arrays
from corenet.engine import Program, initial_state, make_plan, private_spaces
from corenet.kernels import native
from corenet.kernels.backend import select
from corenet.nn import Conv2d, CrossEntropy, Flatten, Linear, MaxPool2d, ReLU, Sequential

SHAPE, CLASSES, CHUNK = (28, 28, 1), 10, 8
SCALES = {"normal": 1.0, "denormal": 1e-40}
MOST = 2.0


def net() -> Sequential:
    """keras_mnist without biases and dropout: what comes in as denormal stays so up to the loss."""
    return Sequential(
        Conv2d(1, 32, 3, bias=False), ReLU(), MaxPool2d(2),
        Conv2d(32, 64, 3, bias=False), ReLU(), MaxPool2d(2),
        Flatten(), Linear(1600, CLASSES, bias=False),
    )  # fmt: skip


def images(n: int, scale: float) -> np.ndarray:
    """n images of noise (n, 28, 28, 1) float32."""
    return np.random.default_rng(0).standard_normal((n, *SHAPE)) * scale


def in_a_worker(n: int, batch: int) -> Callable[[str], float]:
    """A function that trains an epoch on images of that kind in a worker process; its seconds."""
    labels = np.arange(n) % CLASSES
    data: dict[str, Dataset] = {
        kind: from_arrays(images(n, scale).astype(np.float32), labels, mean=0.0, std=1.0)
        for kind, scale in SCALES.items()
    }
    trainer = Trainer(net(), optim.SGD(1e-6, momentum=0.9), workers=1, chunk=CHUNK)

    def seconds(kind: str) -> float:
        return n / trainer.fit(data[kind], batch_size=batch, callbacks=())["images_per_second"][-1]

    return seconds


def in_this_process(n: int) -> Callable[[str], float]:
    """A function that takes n images of that kind forward and backward here; its seconds."""
    plan = make_plan(net(), SHAPE, CHUNK, loss=CrossEntropy())
    state = initial_state(plan, 0)
    spaces = {**private_spaces(plan), "state": state.view(np.uint8), "panels": np.zeros(plan.bytes["panels"], np.uint8)}
    program = Program(plan, spaces)
    for call in program.calls():
        call.link(select("numba"))
    program.targets[:, 0] = np.arange(CHUNK) % CLASSES
    program.scale[0] = 1 / CHUNK
    data = {kind: images(CHUNK, scale) for kind, scale in SCALES.items()}

    def seconds(kind: str) -> float:
        program.images[:] = data[kind]
        begin = time.perf_counter()
        for _ in range(n // CHUNK):
            program.run(0, CHUNK)
        return time.perf_counter() - begin

    return seconds


def ratio(name: str, seconds: Callable[[str], float], rounds: int) -> float:
    """The median over rounds of denormal / normal, with the order of the two turned each round."""
    figures: dict[str, list[float]] = {kind: [] for kind in SCALES}
    for kind in SCALES:  # warm
        seconds(kind)
    for number in range(rounds):
        for kind in list(SCALES)[:: 1 if number % 2 else -1]:
            figures[kind].append(seconds(kind))
    ratios = [b / a for a, b in zip(*figures.values(), strict=True)]
    times = ", ".join(f"{kind} {statistics.median(values) * 1e3:,.0f} ms" for kind, values in figures.items())
    middle = statistics.median(ratios)
    print(f"{name:32s} {times}; denormal / normal {middle:.2f}   ({min(ratios):.2f} … {max(ratios):.2f})")
    return middle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--images", type=int, default=4096, help="images per measurement")
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    print(native.reason)
    cost = ratio("worker, denormals are 0", in_a_worker(options.images, options.batch), options.rounds)
    ratio("this process, they are numbers", in_this_process(options.images), max(3, options.rounds // 3))
    if cost > MOST:
        sys.exit(f"denormals cost {cost:.1f} times as much, expected at most {MOST}")


if __name__ == "__main__":
    main()
