"""Local response normalisation across channels (Krizhevsky, Sutskever & Hinton 2012), PyTorch's definition.

    y_c = x_c / s_c^beta        s_c = k + alpha/size · Σ x_j²        over j = c − size//2 … c + (size − 1)//2

Channels outside the image count as zeros, and the sum is divided by `size` all the same (the paper does not divide).
Arrays are (chunk, positions, C).
"""

import math

import numpy as np

from .operation import device, operation, prange


def _window_sums(values, before, after):
    """Σ over the channels c − before … c + after, zeros outside."""
    C = values.shape[-1]
    padded = np.pad(values, ((0, 0), (0, 0), (before, after)))
    return sum(padded[..., offset : offset + C] for offset in range(before + after + 1))


@device
def inverse_power(s, beta):
    """s^−beta of a float32; the usual 3/4 from two square roots, many times faster than a power."""
    if beta == 0.75:
        root = math.sqrt(s)
        return np.float32(1) / (root * math.sqrt(root))
    return s ** np.float32(-beta)


@operation
def forward(n, x, y, s, size, alpha, beta, k):
    """y as above; s (chunk, positions, C) is kept for backward."""
    s[:n] = k + alpha / size * _window_sums(np.square(x[:n]), size // 2, (size - 1) // 2)
    y[:n] = x[:n] * s[:n] ** -beta


@forward.nest
def forward_nest(n, x, y, s, size, alpha, beta, k):
    C = x.shape[2]
    scale, start = np.float32(alpha / size), np.float32(k)
    for i in prange(n):
        for p in range(x.shape[1]):
            for c in range(C):
                total = np.float32(0)
                for j in range(max(0, c - size // 2), min(C, c + (size - 1) // 2 + 1)):
                    total += x[i, p, j] * x[i, p, j]
                s[i, p, c] = start + scale * total
            for c in range(C):
                y[i, p, c] = x[i, p, c] * inverse_power(s[i, p, c], beta)


@operation
def backward(n, x, y, s, dy, dx, work, size, alpha, beta):
    """dx_j = dy_j·s_j^−beta − 2·alpha·beta/size · x_j · Σ dy_c·y_c/s_c over the channels c whose windows have j.

    work (chunk, C): scratch.
    """
    ratio = dy[:n] * y[:n] / s[:n]
    others = _window_sums(ratio, (size - 1) // 2, size // 2)
    dx[:n] = dy[:n] * s[:n] ** -beta - (2 * alpha * beta / size) * x[:n] * others


@backward.nest
def backward_nest(n, x, y, s, dy, dx, work, size, alpha, beta):
    C = x.shape[2]
    scale = np.float32(2 * alpha * beta / size)
    for i in prange(n):
        for p in range(x.shape[1]):
            for c in range(C):
                work[i, c] = dy[i, p, c] * y[i, p, c] / s[i, p, c]
            for c in range(C):
                dx[i, p, c] = dy[i, p, c] * inverse_power(s[i, p, c], beta)
            for j in range(C):
                total = np.float32(0)
                for c in range(max(0, j - (size - 1) // 2), min(C, j + size // 2 + 1)):
                    total += work[i, c]
                dx[i, p, j] -= scale * x[i, p, j] * total
