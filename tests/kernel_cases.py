"""One table of cases per operation: the same rows drive agreement with the definition and, later, speed.

A case makes the arguments of one call. Arrays in `outputs` are filled with NaN (or 255) before the call and compared
after it; everything beyond sample n must still be that filling.
"""

from dataclasses import dataclass, field

import numpy as np

from corenet.kernels import (
    batchnorm,
    conv2d,
    cross_entropy,
    dropout,
    elementwise,
    gather,
    linear,
    pad2d,
    pool2d,
    tree,
    update,
)
from corenet.kernels.clock import COUNT, EPOCH, FIRST, SEED, SIZE, STEP
from corenet.kernels.operation import Operation


@dataclass
class Case:
    operation: Operation
    args: list  # n first; float arrays as float64
    outputs: list[int]  # places in args that are written, whatever was there
    terms: int = 1  # length of the sums, for the tolerance
    label: str = ""
    per_sample: bool = True  # outputs are (chunk, …), of which only n samples may be written
    scratch: list[int] = field(default_factory=list)
    updated: list[int] = field(default_factory=list)  # read and written: not filled before, compared after
    used_up: list[int] = field(default_factory=list)  # inputs that the operation may spoil


def clock():
    values = np.zeros(SIZE, np.int64)
    values[[SEED, EPOCH, STEP, FIRST, COUNT]] = 2**40 + 7, 3, 11, 2, 13
    return values


def conv_cases(rng, geometries):
    for chunk, n, H, W, C, K, kernel, stride, padding in geometries:
        (R, S), (sh, sw), (ph, pw) = kernel, stride, padding
        P, Q = (H + 2 * ph - R) // sh + 1, (W + 2 * pw - S) // sw + 1
        if P < 1 or Q < 1:
            continue
        x = rng.standard_normal((chunk, H + 2 * ph, W + 2 * pw, C))
        w, b = rng.standard_normal((R, S, C, K)), rng.standard_normal(K)
        y, dy = np.zeros((chunk, P, Q, K)), rng.standard_normal((chunk, P, Q, K))
        label = f"{n}/{chunk}x{H}x{W}x{C}->{K} k{kernel} s{stride} p{padding}"
        none = np.zeros(0)
        yield Case(conv2d.forward, [n, x, w, b, y, stride], [4], R * S * C, label)
        yield Case(conv2d.forward, [n, x, w, none, y, stride], [4], R * S * C, label + " no bias")
        dw, db = np.zeros_like(w), np.zeros_like(b)
        yield Case(conv2d.backward_weights, [n, x, dy, dw, db, stride], [3, 4], n * P * Q, label, per_sample=False)
        dx = np.zeros((chunk, H, W, C))
        work = np.zeros(conv2d.backward_data_work(dx.shape, w.shape, stride, padding))
        yield Case(conv2d.backward_data, [n, dy, w, dx, stride, padding, work], [3], R * S * K, label, scratch=[6])


CONV_GEOMETRIES = [
    # chunk, n, H, W, C, K, kernel, stride, padding
    (3, 2, 9, 11, 1, 6, (5, 5), (1, 1), (2, 2)),
    (4, 4, 28, 28, 1, 32, (3, 3), (1, 1), (0, 0)),
    (2, 2, 13, 13, 32, 64, (3, 3), (1, 1), (0, 0)),
    (3, 2, 8, 8, 16, 32, (3, 3), (2, 2), (1, 1)),
    (2, 2, 8, 8, 16, 32, (1, 1), (2, 2), (0, 0)),
    (1, 1, 7, 5, 3, 17, (4, 2), (3, 2), (1, 0)),
    (2, 1, 10, 9, 5, 3, (2, 3), (4, 3), (1, 2)),
    (2, 2, 1, 1, 7, 19, (1, 1), (1, 1), (0, 0)),
]


def linear_cases(rng):
    for chunk, n, inputs, outputs in [
        (4, 3, 10, 10),
        (16, 16, 200, 128),
        (5, 5, 1, 1),
        (16, 9, 700, 17),
        (33, 33, 70, 84),
    ]:
        x, w, b = (
            rng.standard_normal((chunk, inputs)),
            rng.standard_normal((inputs, outputs)),
            rng.standard_normal(outputs),
        )
        y, dy = np.zeros((chunk, outputs)), rng.standard_normal((chunk, outputs))
        label = f"{n}/{chunk}x{inputs}->{outputs}"
        yield Case(linear.forward, [n, x, w, b, y], [4], inputs, label)
        work = np.zeros(linear.backward_data_work(chunk, inputs, outputs))
        yield Case(linear.backward_data, [n, dy, w, np.zeros_like(x), work], [3], outputs, label, scratch=[4])
        yield Case(linear.backward_bias, [n, dy, np.zeros(outputs)], [2], n, label, per_sample=False)
        dw = np.zeros_like(w)
        yield Case(linear.backward_weights, [n, x, dy, dw, 0, inputs], [3], n, label, per_sample=False)
        if inputs > 2 * linear.ROW_BLOCK:  # one owner's shard, and the last owner's
            args, high = [n, x, dy, dw], 2 * linear.ROW_BLOCK
            yield Case(linear.backward_weights, [*args, linear.ROW_BLOCK, high], [3], n, label, per_sample=False)
            yield Case(linear.backward_weights, [*args, high, inputs], [3], n, label, per_sample=False)
    x, panel = rng.standard_normal((4, 9)), rng.standard_normal((8, 9))
    yield Case(linear.store_rows, [3, x, panel, clock()], [2], per_sample=False)


def elementwise_cases(rng):
    a, b, y = (rng.standard_normal((5, 37)) for _ in range(3))
    yield Case(elementwise.relu_forward, [4, a, y], [2])
    yield Case(elementwise.relu_backward, [4, a, b, y], [3])
    yield Case(elementwise.add, [4, a, b, y], [3])
    x, padded = rng.standard_normal((3, 4, 5, 2)), np.zeros((3, 8, 7, 2))
    yield Case(pad2d.forward, [2, x, padded, (2, 1)], [2])


def pool_cases(rng):
    for H, W, window, stride, padding in [
        (8, 8, (2, 2), (2, 2), (0, 0)),
        (15, 15, (3, 3), (2, 2), (0, 0)),
        (7, 9, (3, 2), (1, 3), (1, 1)),
        (5, 5, (2, 2), (3, 3), (0, 0)),
        (8, 8, (8, 8), (8, 8), (0, 0)),
    ]:
        P = (H + 2 * padding[0] - window[0]) // stride[0] + 1
        Q = (W + 2 * padding[1] - window[1]) // stride[1] + 1
        x = rng.standard_normal((3, H, W, 5)).round(1)  # ties on purpose
        y, dy = np.zeros((3, P, Q, 5)), rng.standard_normal((3, P, Q, 5))
        which = np.zeros(y.shape, np.uint8)
        label = f"{H}x{W} window {window} stride {stride} padding {padding}"
        geometry = [window, stride, padding]
        yield Case(pool2d.max_forward, [2, x, y, which, *geometry], [2, 3], 1, label)
        won = which.copy()
        pool2d.max_forward(3, x, y.copy(), won, *geometry)
        yield Case(pool2d.max_backward, [2, dy, won, np.zeros_like(x), *geometry], [3], 4, label)
        yield Case(pool2d.average_forward, [2, x, y, *geometry], [2], window[0] * window[1], label)
        yield Case(pool2d.average_backward, [2, dy, np.zeros_like(x), *geometry], [2], 9, label)


def batchnorm_cases(rng):
    for chunk, n, positions, C in [(4, 3, 20, 7), (2, 1, 1, 3), (16, 16, 64, 32)]:
        x, dy = rng.standard_normal((chunk, positions, C)) * 3 + 2, rng.standard_normal((chunk, positions, C))
        gamma, beta, mean, rstd = rng.standard_normal(C), rng.standard_normal(C), x[:n].mean((0, 1)), np.ones(C)
        y, zeros = np.zeros_like(x), [np.zeros(C) for _ in range(4)]
        label, terms = f"{n}/{chunk}x{positions}x{C}", n * positions
        args = [n, x, gamma, beta, y, *zeros[:3], np.zeros((chunk, C)), 1e-5]
        yield Case(batchnorm.forward, args, [4, 5, 6, 7], terms, label, scratch=[8], per_sample=False)
        args = [n, x, dy, gamma, mean, rstd, y, *zeros[:2], np.zeros((chunk, 2 * C))]
        yield Case(batchnorm.backward, args, [6, 7, 8], terms, label, scratch=[9], per_sample=False)
        args = [*args[:6], None, *args[7:]]
        yield Case(batchnorm.backward, args, [7, 8], terms, f"{label} no dx", scratch=[9], per_sample=False)
        args = [n, x, gamma, beta, mean, rng.random(C), y, 1e-5]
        yield Case(batchnorm.forward_running, args, [6], 1, label)
    means, centreds, counts = rng.standard_normal((5, 6)), rng.random((5, 6)), np.array([4, 4, 4, 4, 1])
    args = [5, means, centreds, counts, rng.random(6), rng.random(6), np.zeros(6), np.zeros(6), 49, 0.1]
    yield Case(batchnorm.merge, args, [6, 7], 5, per_sample=False)


def random_cases(rng):
    x, samples = rng.standard_normal((4, 13)), np.array([5, 900_000, 2, 17])
    kept = np.zeros(x.shape, np.uint8)
    yield Case(dropout.forward, [3, x, np.zeros_like(x), kept, samples, clock(), 2, 0.3], [2, 3])
    kept = rng.integers(0, 2, x.shape).astype(np.uint8)
    yield Case(dropout.backward, [3, x, kept, np.zeros_like(x), 0.3], [3])
    order, scale, offset = rng.permutation(12), np.array([0.5, 2.0]), np.array([1.0, -1.0])
    for source in (rng.integers(0, 256, (12, 6, 5, 2)).astype(np.uint8), rng.standard_normal((12, 6, 5, 2))):
        for shift, flip in ((0, False), (2, False), (0, True), (1, True)):
            args = [
                3,
                source,
                order,
                4,
                np.zeros((4, 6, 5, 2)),
                np.zeros(4, np.int64),
                scale,
                offset,
                clock(),
                shift,
                flip,
            ]
            yield Case(gather.images, args, [4, 5], 2, f"{source.dtype} shift {shift} flip {flip}")
    labels = rng.integers(0, 9, 12)
    yield Case(gather.labels, [3, labels, np.array([4, 0, 11, 3]), np.zeros(4, np.int64)], [3])
    x = rng.standard_normal((5, 10)) * 4
    args = [4, x, rng.integers(0, 10, 5), np.zeros_like(x), np.zeros(5), np.zeros(2), clock()]
    yield Case(cross_entropy.forward_backward, args, [3, 4, 5], 40, per_sample=False)


def training_cases(rng):
    for chunks in (1, 2, 3, 7, 8):
        rows = rng.standard_normal((chunks, 3000))
        args, label = [chunks, rows, np.zeros(3000), 16, 2960], f"{chunks} chunks"
        yield Case(tree.fold, args, [2], 3, label, per_sample=False, used_up=[1])
        args = [chunks, rows[:, :2].copy(), np.ones(2)]
        yield Case(tree.sum_in_order, args, [], 8, label, per_sample=False, updated=[2])
    old, gradient, out = rng.standard_normal(99), rng.standard_normal(99), [np.zeros(99) for _ in range(3)]
    for nesterov in (0.0, 1.0):
        args = [16, 80, old, out[0], gradient, rng.standard_normal(99), out[1], np.array([0.1, 0.9, 0.01, nesterov])]
        yield Case(update.sgd, args, [3, 6], 4, per_sample=False)
    hyper = np.array([0.01, 0.9, 0.999, 1e-8, 0.1, 1 - 0.9**3, 1 - 0.999**3])
    args = [16, 80, old, out[0], gradient, rng.standard_normal(99), out[1], rng.random(99), out[2], hyper]
    yield Case(update.adam, args, [3, 6, 8], 4, per_sample=False)


def all_cases() -> list[Case]:
    from kernel_cases_layers import more_cases
    from kernel_cases_training import more_training_cases

    rng = np.random.default_rng(0)
    return [
        *conv_cases(rng, CONV_GEOMETRIES),
        *linear_cases(rng),
        *elementwise_cases(rng),
        *pool_cases(rng),
        *batchnorm_cases(rng),
        *random_cases(rng),
        *training_cases(rng),
        *more_cases(rng),
        *more_training_cases(np.random.default_rng(1)),
    ]
