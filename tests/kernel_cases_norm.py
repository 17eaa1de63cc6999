"""Cases of batch normalisation with the ReLU behind it: part of the table in `kernel_cases.py`."""

import numpy as np
from kernel_cases import Case

from corenet.kernels import batchnorm_relu


def norm_relu_cases(rng):
    # Rows of one position and of several, whole and cut; vectors of 16 in blocks of 4, 2 and 1, and what is left.
    for chunk, n, positions, C in [(4, 3, 20, 7), (2, 1, 1, 3), (16, 16, 64, 32), (3, 2, 5, 135), (2, 2, 9, 24)]:
        label, terms = f"{n}/{chunk}x{positions}x{C}", n * positions
        x, dy, more, shortcut = (rng.standard_normal((chunk, positions, C)) for _ in range(4))
        gamma, beta, mean, rstd = rng.standard_normal(C), rng.standard_normal(C), rng.standard_normal(C), rng.random(C)
        beta[0], x[:, 0, 0] = 0, mean[0]  # y is 0 there, with a gradient of 0
        numbers, out, zeros, work = [gamma, beta, mean, rstd], np.zeros_like(x), np.zeros(C), np.zeros((chunk, 2 * C))
        yield Case(batchnorm_relu.normalise, [n, x, *numbers, out], [6], 4, label)
        yield Case(batchnorm_relu.normalise_add, [n, x, shortcut, *numbers, out], [7], 4, label)
        args = [n, x, dy, *numbers, rng.standard_normal((2, C)), out]
        yield Case(batchnorm_relu.backward, args, [8], 4, label)
        for means, what in ((np.zeros((2, C)), label), (None, f"{label}, of all chunks")):
            to, some = [zeros, zeros.copy(), means, work], [] if means is None else [9]
            args = [n, x, dy, *numbers, *to]
            yield Case(batchnorm_relu.measure_gradients, args, [7, 8, *some], terms, what, False, scratch=[10])
            y, some = np.maximum(shortcut, 0), [] if means is None else [10]
            for two, how in ((None, what), (more, f"{what}, of a sum")):
                args = [n, x, y, dy, two, mean, rstd, out, *to]
                places = [7, 8, 9, *some]
                yield Case(batchnorm_relu.measure_gradients_add, args, places, terms, how, False, scratch=[11])


FAMILIES = (norm_relu_cases,)
