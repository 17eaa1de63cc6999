"""The register tile's implementations beside each other: convolutions of some shapes on one thread, in GF/s.

    python bench/tile.py [--rounds 60]

Kernels take turns in one process, and the least time of each counts: other programs on the machine only ever add.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter

import numpy as np

from corenet.kernels import conv, native
from corenet.kernels.backend import select

SAMPLES = 8
SHAPES = [(32, 32, 32), (16, 64, 64), (32, 3, 32), (16, 64, 10)]  # height and width, input channels, output channels
ONE = 1, 1, 1


def calls(size: int, inputs: int, outputs: int) -> dict[str, tuple]:
    """The three operations of a 3×3 convolution with padding 1: operation and arguments."""
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    x, w = floats(SAMPLES, 1, size + 2, size + 2, inputs), floats(1, 3, 3, inputs, outputs)
    y, dy = (floats(SAMPLES, 1, size, size, outputs) for _ in range(2))
    dx = floats(SAMPLES, 1, size, size, inputs)
    padding = 0, 1, 1
    work = floats(conv.backward_data_work(dx.shape, dy.shape, w.shape, ONE, padding, ONE))
    return {
        "forward": (conv.forward, (SAMPLES, x, w, floats(outputs), y, ONE, ONE, 1)),
        "backward_data": (conv.backward_data, (SAMPLES, dy, w, dx, ONE, padding, ONE, 1, work)),
        "backward_weights": (conv.backward_weights, (SAMPLES, x, dy, np.empty_like(w), ONE, ONE, 1)),
    }


def least_seconds(functions: dict[str, Callable], args: tuple, rounds: int) -> dict[str, float]:
    """The least time of a call of each, which take turns."""
    least = dict.fromkeys(functions, np.inf)
    for _ in range(rounds):
        for name, function in functions.items():
            begin = perf_counter()
            function(*args)
            least[name] = min(least[name], perf_counter() - begin)
    return least


def main() -> None:
    """Print a line for each shape and operation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    names = ["numba", *(f"c-{name}" for name in native.tiles())]
    print(f"{'3×3 convolution':38}" + "".join(f"{name:>12}" for name in names))
    for size, inputs, outputs in SHAPES:
        for what, (operation, args) in calls(size, inputs, outputs).items():
            functions = {name: select(name).function(operation, args) for name in names}
            work = 2 * SAMPLES * size * size * 9 * inputs * outputs
            rates = [work / seconds / 1e9 for seconds in least_seconds(functions, args, rounds).values()]
            label = f"{size}×{size}×{inputs} → {outputs}, {what}"
            print(f"{label:38}" + "".join(f"{rate:12.1f}" for rate in rates), flush=True)


if __name__ == "__main__":
    main()
