"""Cases of Winograd's convolutions: part of the table in `kernel_cases.py`."""

import numpy as np
from kernel_cases import Case

from corenet.kernels import winograd_2x3, winograd_4x3, winograd_4x5
from corenet.kernels.winograd import filters_work, weights_work

MEMBERS = {"2x3": winograd_2x3, "4x3": winograd_4x3, "4x5": winograd_4x5}
ROUNDING = {"2x3": 36, "4x3": 144, "4x5": 1000}  # for each channel, how many terms of a sum round as much

# chunk, n, (H, W), C, K, (top, left) of 3×3 filters, one more of 5×5, so that outputs are of the same size: odd sizes,
# channels beside the lanes, more patches than a block has, no border
GEOMETRIES = [
    (3, 2, (8, 8), 16, 16, (1, 1)),
    (2, 1, (5, 9), 3, 20, (1, 1)),
    (3, 3, (13, 6), 17, 5, (0, 0)),
    (2, 2, (3, 3), 1, 1, (0, 0)),
    (2, 1, (1, 7), 4, 33, (2, 1)),
    (3, 2, (26, 27), 18, 32, (1, 0)),
    (6, 5, (22, 26), 2, 3, (0, 0)),  # several images to add to for each of two groups
    (1, 1, (4, 6), 2, 3, (0, 0)),  # a single patch
    (2, 2, (7, 9), 3, 4, (1, 1, 5)),  # five rows and columns behind are left out
    (2, 1, (2, 3), 4, 5, (9, 8)),  # patches without a single pixel
    (2, 2, (9, 8), 3, 2, (-1, 0)),  # the first row is left out, which for 5×5 filters is their padding
]


def winograd_cases(rng):
    for name, kernels in MEMBERS.items():
        m, r = int(name[0]), int(name[2])
        for chunk, n, (H, W), C, K, (top, left, *fewer) in GEOMETRIES:
            P, Q = H + 2 * top - 2 - sum(fewer), W + 2 * left - 2 - sum(fewer)
            top, left = top + (r - 3) // 2, left + (r - 3) // 2
            x, w, b = rng.standard_normal((chunk, H, W, C)), rng.standard_normal((r, r, C, K)), rng.standard_normal(K)
            y, dy, dx = np.zeros((chunk, P, Q, K)), rng.standard_normal((chunk, P, Q, K)), np.zeros((chunk, H, W, C))
            label = f"{n}/{chunk}x{H}x{W}x{C}->{K} p{top},{left}"
            around, terms = [top, left, np.zeros(filters_work(m, r, C, K))], ROUNDING[name]
            for bias in (b, np.zeros(0)):
                args = [n, x, w, bias, y, *around]
                yield Case(kernels.forward, args, [4], terms * C, f"{label} bias {bias.size}", scratch=[7])
            for form in (kernels.backward_data, kernels.backward_data_adjoint):
                yield Case(form, [n, dy, w, dx, *around], [3], terms * K, label, scratch=[6])
            args = [n, x, dy, np.zeros_like(w), top, left, np.zeros(weights_work(m, r, C, K))]
            yield Case(kernels.backward_weights, args, [3], terms * n * P * Q, label, per_sample=False, scratch=[6])


FAMILIES = (winograd_cases,)
