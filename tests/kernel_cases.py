"""One table of cases per operation: the same rows drive agreement with the definition and, later, speed.

A case makes the arguments of one call. Arrays in `outputs` are filled with NaN (or 255) before the call and compared
after it; everything beyond sample n must still be that filling.
"""

from dataclasses import dataclass, field
from math import prod

import numpy as np

from corenet.kernels import (
    batchnorm,
    bias,
    conv,
    depthwise,
    dropout,
    elementwise,
    gather,
    linear,
    pad,
    peaks,
    pool,
    tree,
    update,
)
from corenet.kernels.clock import EPOCH, FIRST, SEED, SIZE, STEP
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
    values[[SEED, EPOCH, STEP, FIRST]] = 2**40 + 7, 3, 11, 2
    return values


def conv_cases(rng):
    for chunk, n, size, C, K, kernel, stride, padding, dilation, groups in CONV_GEOMETRIES:
        padded = [s + 2 * p for s, p in zip(size, padding, strict=True)]
        out = [(s - d * (k - 1) - 1) // t + 1 for s, k, t, d in zip(padded, kernel, stride, dilation, strict=True)]
        x, w = rng.standard_normal((chunk, *padded, C)), rng.standard_normal((*kernel, C // groups, K))
        b, none = rng.standard_normal(K), np.zeros(0)
        y, dy, dx = np.zeros((chunk, *out, K)), rng.standard_normal((chunk, *out, K)), np.zeros((chunk, *size, C))
        label = f"{n}/{chunk}x{size}x{C}->{K} k{kernel} s{stride} p{padding} d{dilation} g{groups}"
        how, terms = [stride, dilation, groups], prod(kernel) * C // groups
        for kernels in (conv, depthwise) if 1 < groups == C == K else (conv,):
            yield Case(kernels.forward, [n, x, w, b, y, *how], [4], terms, label)
            yield Case(kernels.forward, [n, x, w, none, y, *how], [4], terms, label + " no bias")
            args = [n, x, dy, np.zeros_like(w), *how]
            yield Case(kernels.backward_weights, args, [3], n * prod(out), label, per_sample=False)
            work = np.zeros(kernels.backward_data_work(dx.shape, dy.shape, w.shape, stride, padding, dilation))
            args = [n, dy, w, dx, stride, padding, dilation, groups, work]
            yield Case(kernels.backward_data, args, [3], prod(kernel) * K // groups, label, scratch=[8])
    x, padded = rng.standard_normal((3, 2, 4, 5, 2)), np.zeros((3, 5, 8, 7, 2))
    for before in ((1, 2, 0), (2, 1, 1)):
        yield Case(pad.forward, [2, x, padded, before], [2], 1, f"{before} before")
    y, b = rng.standard_normal((3, 20, 17)), rng.standard_normal(17)
    yield Case(bias.add, [3, b, y], [], 1, per_sample=False, updated=[2])
    yield Case(bias.backward, [2, y, np.zeros(17)], [2], 40, per_sample=False)


ONE, NONE = (1, 1, 1), (0, 0, 0)
CONV_GEOMETRIES = [
    # chunk, n, size, C, K, kernel, stride, padding, dilation, groups
    (3, 2, (1, 9, 11), 1, 6, (1, 5, 5), ONE, (0, 2, 2), ONE, 1),
    (4, 4, (1, 28, 28), 1, 32, (1, 3, 3), ONE, NONE, ONE, 1),
    (2, 2, (1, 13, 13), 32, 64, (1, 3, 3), ONE, NONE, ONE, 1),
    (3, 2, (1, 8, 8), 16, 32, (1, 3, 3), (1, 2, 2), (0, 1, 1), ONE, 1),
    (2, 2, (1, 8, 8), 16, 32, ONE, (1, 2, 2), NONE, ONE, 1),
    (1, 1, (1, 7, 5), 3, 17, (1, 4, 2), (1, 3, 2), (0, 1, 0), ONE, 1),
    (2, 1, (1, 10, 9), 5, 3, (1, 2, 3), (1, 4, 3), (0, 1, 2), ONE, 1),
    (2, 2, ONE, 7, 19, ONE, ONE, NONE, ONE, 1),
    (2, 1, (1, 1, 23), 4, 18, (1, 1, 5), (1, 1, 2), (0, 0, 3), (1, 1, 2), 1),  # a sequence
    (2, 2, (5, 6, 7), 3, 17, (2, 3, 3), (1, 2, 1), (1, 1, 0), ONE, 1),  # a volume
    (2, 2, (1, 9, 8), 6, 34, (1, 3, 3), ONE, (0, 2, 2), (1, 2, 3), 2),
    (3, 2, (1, 14, 14), 32, 32, (1, 3, 3), ONE, (0, 1, 1), ONE, 32),  # one filter per channel
    (2, 1, (3, 6, 7), 5, 5, (2, 3, 3), (2, 2, 3), (1, 2, 1), (1, 2, 1), 5),
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
    yield Case(elementwise.relu_backward, [4, np.maximum(a, 0), b, y], [3])
    yield Case(elementwise.add, [4, a, b, y], [3])


def pool_cases(rng):
    for size, window, stride, padding, out in [
        ((1, 8, 8), (1, 2, 2), (1, 2, 2), NONE, (1, 4, 4)),
        ((1, 15, 15), (1, 3, 3), (1, 2, 2), NONE, (1, 7, 7)),
        ((1, 7, 9), (1, 3, 2), (1, 1, 3), (0, 1, 1), (1, 7, 4)),
        ((1, 5, 5), (1, 2, 2), (1, 3, 3), NONE, (1, 2, 2)),
        ((1, 8, 8), (1, 8, 8), (1, 8, 8), NONE, ONE),
        ((1, 1, 20), (1, 1, 4), (1, 1, 3), (0, 0, 2), (1, 1, 8)),  # ceil: the last window is cut
        ((5, 4, 6), (3, 2, 3), (2, 3, 2), (1, 0, 1), (3, 2, 4)),  # a volume, ceil
        # Almost halves: another width, height or depth, padding on one side.
        ((1, 6, 7), (1, 2, 3), (1, 2, 2), NONE, (1, 3, 3)),
        ((1, 7, 6), (1, 3, 2), (1, 2, 2), NONE, (1, 3, 3)),
        ((4, 6, 6), (2, 2, 2), (1, 2, 2), NONE, (3, 3, 3)),
        ((1, 6, 6), (1, 2, 2), (1, 2, 2), (0, 1, 0), (1, 4, 3)),
        ((1, 6, 6), (1, 2, 2), (1, 2, 2), (0, 0, 1), (1, 3, 4)),
    ]:
        C = 35 if size == (1, 7, 9) else 5
        x = rng.standard_normal((3, *size, C)).round(1)  # ties on purpose
        y, dy = np.zeros((3, *out, C)), rng.standard_normal((3, *out, C))
        numbers = np.int32 if max(window) > 4 else np.uint8
        which, label = np.zeros(y.shape, numbers), f"{size} window {window} stride {stride} padding {padding}"
        geometry, terms = [window, stride, padding], prod(window)
        yield Case(pool.max_forward, [2, x, y, which, *geometry], [2, 3], 1, label)
        won = which.copy()
        pool.max_forward(3, x, y.copy(), won, *geometry)
        yield Case(pool.max_backward, [2, dy, won, np.zeros_like(x), *geometry], [3], terms, label)
        for count in (True, False):
            yield Case(pool.average_forward, [2, x, y, *geometry, count], [2], terms, f"{label} {count}")
            yield Case(
                pool.average_backward, [2, dy, np.zeros_like(x), *geometry, count], [2], terms, f"{label} {count}"
            )


def batchnorm_cases(rng):
    for chunk, n, positions, C in [(4, 3, 20, 7), (2, 1, 1, 3), (16, 16, 64, 32), (3, 2, 5, 135)]:
        x, dy = rng.standard_normal((chunk, positions, C)) * 3 + 2, rng.standard_normal((chunk, positions, C))
        gamma, beta, mean, rstd = rng.standard_normal(C), rng.standard_normal(C), x[:n].mean((0, 1)), rng.random(C)
        y, zeros, means = np.zeros_like(x), [np.zeros(C) for _ in range(3)], np.zeros((2, C))
        label, terms = f"{n}/{chunk}x{positions}x{C}", n * positions
        args = [n, x, *zeros, np.zeros((chunk, 2 * C)), 1e-5]
        yield Case(batchnorm.measure, args, [2, 3, 4], terms, label, scratch=[5], per_sample=False)
        far = [n, x + 1000, *args[2:]]  # what is squared is the difference to the mean
        yield Case(batchnorm.measure, far, [2, 3, 4], terms, f"{label} far", scratch=[5], per_sample=False)
        first = np.arange(chunk) < 1  # an image unlike the others
        apart = [n, x + 100.0 * first[:, None, None], *args[2:]]
        yield Case(batchnorm.measure, apart, [2, 3, 4], terms, f"{label} apart", scratch=[5], per_sample=False)
        args, what = [*args[:4], None, *args[5:]], f"{label}, of all chunks"
        yield Case(batchnorm.measure, args, [2, 3], terms, what, scratch=[5], per_sample=False)
        yield Case(batchnorm.normalise, [n, x, gamma, beta, mean, rstd, y], [6], 1, label)
        args = [n, x, dy, mean, rstd, *zeros[:2], means, np.zeros((chunk, 2 * C))]
        yield Case(batchnorm.measure_gradients, args, [5, 6, 7], terms, label, scratch=[8], per_sample=False)
        args = [*args[:7], None, args[8]]
        yield Case(batchnorm.measure_gradients, args, [5, 6], terms, what, scratch=[8], per_sample=False)
        yield Case(batchnorm.backward, [n, x, dy, gamma, mean, rstd, np.stack([beta, gamma]), y], [7], 4, label)
        yield Case(batchnorm.running_rstd, [1, rstd, zeros[0], 1e-5], [2], 1, label, per_sample=False)
    means, centreds, counts = rng.standard_normal((5, 6)), rng.random((5, 6)), np.array([4, 4, 4, 4, 1])
    args = [5, means, centreds, counts, rng.random(6), rng.random(6), np.zeros(6), np.zeros(6), 49, 0.1]
    yield Case(batchnorm.merge, args, [6, 7], 5, per_sample=False)
    for n in (1, 3, 4, 5):
        label, counts = f"{n} chunks", np.full(5, 4)
        counts[n - 1] = 3
        args = [n, means, centreds, counts, np.zeros(6), np.zeros(6), np.zeros((5, 12)), 49, 1e-5]
        yield Case(batchnorm.combine, args, [4, 5], n, label, scratch=[6], per_sample=False)
        args = [n, means, centreds, counts, np.zeros((2, 6)), np.zeros((5, 12)), 49]
        yield Case(batchnorm.combine_gradients, args, [4], n, label, scratch=[5], per_sample=False)


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
                7,
                source,
                order,
                4,
                np.zeros((8, 6, 5, 2)),
                np.zeros(8, np.int64),
                scale,
                offset,
                clock(),
                shift,
                flip,
            ]
            yield Case(gather.images, args, [4, 5], 2, f"{source.dtype} shift {shift} flip {flip}")
    samples = np.array([4, 0, 11, 3])
    for source in (rng.integers(0, 9, (12, 1)), rng.integers(0, 9, (12, 6)), rng.standard_normal((12, 3))):
        label = f"{source.dtype} {source.shape[1]}"
        yield Case(gather.targets, [3, source, samples, np.zeros((4, source.shape[1]), source.dtype)], [3], 1, label)


def training_cases(rng):
    for chunks in (1, 2, 3, 7, 8):
        rows = rng.standard_normal((chunks, 3000))
        label = f"{chunks} chunks"
        for width, low, high in ((3000, 16, 2960), (9, 2, 7), (9, 3, 4)):
            args = [chunks, rows[:, :width].copy(), np.zeros(width), low, high]
            yield Case(tree.fold, args, [2], 3, f"{label}, {low} to {high}", per_sample=False, used_up=[1])
        args = [chunks, rows[:, :2].copy(), np.ones(2)]
        yield Case(tree.sum_in_order, args, [], 8, label, per_sample=False, updated=[2])
    old, gradient, out = rng.standard_normal(99), rng.standard_normal(99), [np.zeros(99) for _ in range(3)]
    for nesterov in (0.0, 1.0):
        args = [16, 80, old, out[0], gradient, rng.standard_normal(99), out[1], np.array([0.1, 0.9, 0.01, nesterov])]
        yield Case(update.sgd, args, [3, 6], 4, per_sample=False)
    hyper = np.array([0.01, 0.9, 0.999, 1e-3, 0.1, 1 - 0.9**3, 1 - 0.999**3])
    args = [16, 80, old, out[0], gradient, rng.standard_normal(99), out[1], rng.random(99), out[2], hyper]
    yield Case(update.adam, args, [3, 6, 8], 4, per_sample=False)


def peaks_cases(rng):
    for chunk, n, columns, steps, repeats in [(9, 9, 16, 3, 2), (23, 17, 5, 4, 3), (3, 1, 1, 1, 1)]:
        a, b, c = rng.standard_normal(steps), rng.standard_normal(columns), np.zeros((chunk, columns))
        label = f"{n}/{chunk}x{columns}, {repeats} x {steps} steps"
        yield Case(peaks.multiply_adds, [n, repeats, a, b, c], [4], steps * repeats, label)
    b, c = rng.standard_normal((2, 21))
    yield Case(peaks.triad, [18, np.zeros(21), b, c], [1])


def all_cases() -> list[Case]:
    """Each family draws from a generator of its own: a new case moves no other's numbers."""
    from kernel_cases_bf16 import FAMILIES as OF_BF16
    from kernel_cases_layers import FAMILIES as OF_LAYERS
    from kernel_cases_norm import FAMILIES as OF_NORM
    from kernel_cases_pooled import FAMILIES as OF_POOLED
    from kernel_cases_training import FAMILIES as OF_TRAINING
    from kernel_cases_winograd import FAMILIES as OF_WINOGRAD

    own = conv_cases, linear_cases, elementwise_cases, pool_cases, batchnorm_cases, random_cases, training_cases
    families = (*own, peaks_cases, *OF_LAYERS, *OF_TRAINING, *OF_WINOGRAD, *OF_POOLED, *OF_NORM, *OF_BF16)
    return [case for family in families for case in family(np.random.default_rng(list(family.__name__.encode())))]
