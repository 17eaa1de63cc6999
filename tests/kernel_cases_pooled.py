"""Cases of a convolution before a max-pool: part of the table in `kernel_cases.py`."""

from math import prod

import numpy as np
from kernel_cases import Case

from corenet.kernels import pool, pooled_conv

ONE, NONE = (1, 1, 1), (0, 0, 0)

# size, C, K, filter, stride, padding, then the pool's window, stride and padding
GEOMETRIES = [
    ((1, 10, 12), 1, 6, (1, 5, 5), ONE, (0, 2, 2), (1, 2, 2), (1, 2, 2), NONE),
    ((1, 10, 9), 6, 16, (1, 5, 5), ONE, NONE, (1, 2, 2), (1, 2, 2), NONE),
    ((1, 11, 11), 3, 17, (1, 5, 5), ONE, (0, 2, 2), (1, 3, 3), (1, 2, 2), NONE),  # windows that overlap
    ((1, 9, 13), 4, 5, (1, 3, 4), (1, 2, 3), (0, 1, 2), (1, 3, 2), (1, 2, 2), (0, 1, 1)),
    ((5, 6, 7), 2, 3, (2, 3, 2), (1, 2, 1), (1, 1, 0), (2, 1, 3), (2, 1, 2), (1, 0, 1)),  # a volume
    ((9, 7, 8), 2, 3, (2, 2, 3), (2, 1, 2), (1, 0, 1), (2, 2, 1), (2, 2, 1), NONE),  # strides along each axis
    ((4, 5, 6), 2, 3, (3, 2, 2), ONE, (1, 0, 0), (2, 2, 2), (2, 2, 2), NONE),  # reaches into the padding behind
    ((1, 1, 23), 5, 4, (1, 1, 7), (1, 1, 2), (0, 0, 3), (1, 1, 4), (1, 1, 4), NONE),  # a sequence
    ((1, 4, 4), 1, 1, ONE, ONE, NONE, (1, 2, 2), (1, 2, 2), NONE),
]


def pooled_cases(rng):
    for size, C, K, kernel, stride, padding, window, step, around in GEOMETRIES:
        padded = [s + 2 * p for s, p in zip(size, padding, strict=True)]
        full = tuple((s - k) // t + 1 for s, k, t in zip(padded, kernel, stride, strict=True))
        out = [(s + 2 * p - f) // t + 1 for s, p, f, t in zip(full, around, window, step, strict=True)]
        x, w, dx = rng.standard_normal((3, *padded, C)), rng.standard_normal((*kernel, C, K)), np.zeros((3, *size, C))
        z, dy = np.zeros((3, *out, K)), rng.standard_normal((3, *out, K))
        dy[rng.random(dy.shape) < 0.4] = 0  # where a ReLU is dead
        which, how = np.zeros(z.shape, np.uint8), [window, step, around]
        pool.max_forward(3, rng.standard_normal((3, *full, K)), z, which, *how)
        label = f"{size}x{C}->{K} k{kernel} s{stride} p{padding} pool {window} s{step} p{around}"
        args = [2, x, dy, which, np.zeros_like(w), stride, *how]
        yield Case(pooled_conv.backward_weights, args, [4], 2 * prod(out), label, per_sample=False)
        floats = pooled_conv.backward_data_work(dx.shape, dy.shape, w.shape, stride, padding, *how)
        args = [2, dy, which, w, dx, full, stride, padding, *how, np.zeros(floats)]
        yield Case(pooled_conv.backward_data, args, [4], prod(kernel) * K * prod(window), label, scratch=[11])


# padded size, C, K, filter, stride, type of `which`
HALVED = [
    ((1, 16, 33), 1, 6, (1, 5, 5), ONE, np.uint8),  # neighbours, by half vectors
    ((1, 19, 32), 1, 27, (1, 3, 3), (1, 2, 1), np.int32),
    ((1, 6, 40), 1, 6, (1, 3, 3), (1, 1, 2), np.uint8),  # as wide, but no neighbours
    ((1, 8, 9), 1, 16, (1, 3, 2), ONE, np.uint8),  # too few windows for neighbours
    ((1, 14, 11), 6, 16, (1, 5, 5), ONE, np.uint8),
    ((1, 9, 14), 3, 37, (1, 3, 3), (1, 1, 2), np.uint8),
    ((4, 7, 8), 2, 9, (2, 3, 2), (2, 1, 1), np.int32),
    ((1, 2, 2), 1, 1, ONE, ONE, np.uint8),
]


def forward_cases(rng):
    for size, C, K, kernel, stride, which in HALVED:
        full = [(s - k) // t + 1 for s, k, t in zip(size, kernel, stride, strict=True)]
        x, w, b = rng.standard_normal((3, *size, C)), rng.standard_normal((*kernel, C, K)), rng.standard_normal(K)
        y = np.zeros((3, full[0], full[1] // 2, full[2] // 2, K))
        for name, bias in ("", b), (" no bias", np.zeros(0)):
            args = [2, x, w, bias, y, np.zeros(y.shape, which), stride]
            label = f"{size}x{C}->{K} k{kernel} s{stride}{name}"
            yield Case(pooled_conv.forward, args, [4, 5], prod(kernel) * C, label)


FAMILIES = (pooled_cases, forward_cases)
