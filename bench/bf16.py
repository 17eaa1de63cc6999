"""Products with operands of bfloat16 beside those of float32, on one thread: GF/s.

    python bench/bf16.py [--rounds 60]

Kernels take turns in one process, and the least time of each counts: other programs on the machine only ever add. GF/s
are the convolution's own operations; Winograd's makes fewer of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np
from tile import least_seconds

from corenet.kernels import bf16_conv, bf16_linear, conv, linear, winograd
from corenet.kernels.backend import select

SAMPLES = 8
ONE = 1, 1, 1
CONVOLUTIONS = [(32, 5, 32, 32), (28, 3, 1, 32), (16, 3, 64, 64), (32, 3, 32, 32)]  # size, filter, channels
DENSE = [(16, 9216, 128), (64, 1600, 10)]  # rows, inputs, outputs

Contestants = dict[str, tuple[Callable, tuple]]


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def scratch(size: int) -> np.ndarray:
    return np.zeros(size, np.uint16)


def convolution(size: int, filter_size: int, inputs: int, outputs: int) -> Iterator[tuple[str, Contestants]]:
    """The three operations of a convolution with padding "same"."""
    border = filter_size // 2
    x = floats(SAMPLES, 1, size + 2 * border, size + 2 * border, inputs)
    w, b = floats(1, filter_size, filter_size, inputs, outputs), floats(outputs)
    y, dy = (floats(SAMPLES, 1, size, size, outputs) for _ in range(2))
    dx, dw, padding = floats(SAMPLES, 1, size, size, inputs), np.empty_like(w), (0, border, border)
    shapes = dx.shape, dy.shape, w.shape, ONE, padding, ONE
    found: dict[str, Contestants] = {
        "forward": {
            "float32": (conv.forward, (x, w, b, y, ONE, ONE, 1)),
            "bf16": (bf16_conv.forward, (x, w, b, y, ONE, ONE, 1, scratch(bf16_conv.forward_work(x.shape, w.shape)))),
        },
        "backward_weights": {
            "float32": (conv.backward_weights, (x, dy, dw, ONE, ONE, 1)),
            "bf16": (bf16_conv.backward_weights,
                     (x, dy, dw, ONE, ONE, 1, scratch(bf16_conv.backward_weights_work(x.shape, dy.shape)))),
        },
        "backward_data": {
            "float32": (conv.backward_data, (dy, w, dx, ONE, padding, ONE, 1,
                                             floats(conv.backward_data_work(*shapes)))),
            "bf16": (bf16_conv.backward_data, (dy, w, dx, ONE, padding, ONE, 1,
                                               scratch(bf16_conv.backward_data_work(*shapes)))),
        },
    }  # fmt: skip
    if filter_size == 3:
        plain = [a[:, 0] if a.ndim == 5 and a.shape[1] == 1 else a for a in (dx, dy, y)]
        found["forward"]["winograd"] = winograd.forward, (plain[0], w[0], b, plain[2], 1, 1)
        found["backward_weights"]["winograd"] = winograd.backward_weights, (plain[0], plain[1], dw[0], 1, 1)
        found["backward_data"]["winograd"] = winograd.backward_data, (plain[1], w[0], plain[0], 1, 1)
    yield from found.items()


def dense(rows: int, inputs: int, outputs: int) -> Iterator[tuple[str, Contestants]]:
    """The three products of a dense layer."""
    x, w, b, y = floats(rows, inputs), floats(inputs, outputs), floats(outputs), floats(rows, outputs)
    dy, dx, dw = floats(rows, outputs), np.empty_like(x), np.empty_like(w)
    yield (
        "forward",
        {
            "float32": (linear.forward, (x, w, b, y)),
            "bf16": (bf16_linear.forward, (x, w, b, y, scratch(x.size))),
        },
    )
    yield (
        "backward_weights",
        {
            "float32": (linear.backward_weights, (x, dy, dw, 0, inputs)),
            "bf16": (bf16_linear.backward_weights, (x, dy, dw, 0, inputs)),
        },
    )
    yield "backward_data", {
        "float32": (linear.backward_data, (dy, w, dx, floats(linear.backward_data_work(rows, inputs, outputs)))),
        "bf16": (bf16_linear.backward_data,
                 (dy, w, dx, scratch(bf16_linear.backward_data_work(rows, inputs, outputs)))),
    }  # fmt: skip


def report(label: str, n: int, operations: float, contestants: Contestants, rounds: int) -> None:
    """Print a line."""
    functions = {}
    for name, (operation, args) in contestants.items():
        compiled = select("numba").function(operation, (n, *args))
        functions[name] = lambda compiled=compiled, args=args: compiled(n, *args)
    rates = {name: operations / seconds / 1e9 for name, seconds in least_seconds(functions, (), rounds).items()}
    print(f"{label:44}" + "".join(f"{name:>12} {rate:6.1f}" for name, rate in rates.items()), flush=True)


def main() -> None:
    """Print a line for each shape and operation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    for size, filter_size, inputs, outputs in CONVOLUTIONS:
        operations = 2 * SAMPLES * size * size * filter_size**2 * inputs * outputs
        for what, contestants in convolution(size, filter_size, inputs, outputs):
            label = f"{size}×{size}×{inputs} → {outputs}, {filter_size}×{filter_size}, {what}"
            report(label, SAMPLES, operations, contestants, rounds)
    for rows, inputs, outputs in DENSE:
        for what, contestants in dense(rows, inputs, outputs):
            report(f"{rows} × {inputs} → {outputs}, {what}", rows, 2 * rows * inputs * outputs, contestants, rounds)


if __name__ == "__main__":
    main()
