"""Cases of Winograd's convolution: part of the table in `kernel_cases.py`."""

import numpy as np
from kernel_cases import Case

from corenet.kernels import winograd

# chunk, n, (H, W), C, K, (top, left): odd sizes, channels beside the lanes, more patches than a block has, no border
GEOMETRIES = [
    (3, 2, (8, 8), 16, 16, (1, 1)),
    (2, 1, (5, 9), 3, 20, (1, 1)),
    (3, 3, (13, 6), 17, 5, (0, 0)),
    (2, 2, (3, 3), 1, 1, (0, 0)),
    (2, 1, (1, 7), 4, 33, (2, 1)),
    (3, 2, (26, 27), 18, 32, (1, 0)),
    (1, 1, (4, 6), 2, 3, (0, 0)),  # a single patch
    (2, 2, (7, 9), 3, 4, (1, 1, 5)),  # five rows and columns behind are left out
]


def winograd_cases(rng):
    for chunk, n, (H, W), C, K, (top, left, *fewer) in GEOMETRIES:
        P, Q = H + 2 * top - 2 - sum(fewer), W + 2 * left - 2 - sum(fewer)
        x, w, b = rng.standard_normal((chunk, H, W, C)), rng.standard_normal((3, 3, C, K)), rng.standard_normal(K)
        y, dy, dx = np.zeros((chunk, P, Q, K)), rng.standard_normal((chunk, P, Q, K)), np.zeros((chunk, H, W, C))
        label = f"{n}/{chunk}x{H}x{W}x{C}->{K} p{top},{left}"
        around = top, left
        for bias in (b, np.zeros(0)):
            yield Case(winograd.forward, [n, x, w, bias, y, *around], [4], 36 * C, f"{label} bias {bias.size}")
        yield Case(winograd.backward_data, [n, dy, w, dx, *around], [3], 36 * K, label)
        args = [n, x, dy, np.zeros_like(w), *around]
        yield Case(winograd.backward_weights, args, [3], 36 * n * P * Q, label, per_sample=False)


FAMILIES = (winograd_cases,)
