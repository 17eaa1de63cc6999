"""exp and its relatives as plain float32 arithmetic: loops over them become vectors, which calls of a C library do not.

exp(x) is split as in Cephes' expf (Moshier 1989): with n the integer nearest to x/log 2 and r = x − n·log 2, it is
2ⁿ·(1 + q), q = exp(r) − 1 being a polynomial. All functions are right to a few roundings; what is smaller than the
smallest normal number is 0, as it is in a worker. NaN passes through.
"""

import numpy as np

from .operation import device

LOWEST = -87.3  # log of the smallest normal float32


@device
def split(x):
    """(q, 2ⁿ) of exp(x) = 2ⁿ·(1 + q), for LOWEST <= x <= 0."""
    x = x if x > np.float32(LOWEST) else np.float32(LOWEST)  # NaN, too: an integer cannot be made of it
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = (x - n * np.float32(0.693359375)) + n * np.float32(2.12194440e-4)
    q = np.float32(1.9875691500e-4)
    q = q * r + np.float32(1.3981999507e-3)
    q = q * r + np.float32(8.3334519073e-3)
    q = q * r + np.float32(4.1665795894e-2)
    q = q * r + np.float32(1.6666665459e-1)
    q = q * r + np.float32(5.0000001201e-1)
    q = q * (r * r) + r
    bits = (np.int32(n) + np.int32(127)) << np.int32(23)
    return q, np.int32(bits).view(np.float32)


@device
def exp_down(x):
    """exp(x) for x <= 0."""
    q, scale = split(x)
    y = scale * q + scale
    y = np.float32(0) if x < np.float32(LOWEST) else y
    return y if x == x else x


@device
def expm1_down(x):
    """exp(x) − 1 for x <= 0, accurate near 0."""
    q, scale = split(x)
    y = scale * q + (scale - np.float32(1))
    return y if x == x else x


@device
def tanh32(x):
    """tanh(x): by a polynomial near 0 (Cephes' tanhf), else by exp(−2·|x|)."""
    size = abs(x)
    e = exp_down(np.float32(-2) * size)
    far = np.float32(1) - np.float32(2) * e / (np.float32(1) + e)
    far = far if x > 0 else -far
    z = x * x
    near = np.float32(-5.70498872745e-3)
    near = near * z + np.float32(2.06390887954e-2)
    near = near * z + np.float32(-5.37397155531e-2)
    near = near * z + np.float32(1.33314422036e-1)
    near = near * z + np.float32(-3.33332819422e-1)
    near = near * z * x + x
    return near if size < np.float32(0.625) else far


@device
def normal32(x):
    """Φ(x) and its derivative, of the standard normal distribution; Φ(−t) = exp(−t²/2)·(polynomial in 1/(1 + t/4))."""
    size = abs(x)
    e = exp_down(np.float32(-0.5) * x * x)
    u = np.float32(1) / (np.float32(1) + np.float32(0.25) * size)
    tail = np.float32(0.03479984718)
    tail = tail * u + np.float32(-0.2007930453)
    tail = tail * u + np.float32(0.4058290608)
    tail = tail * u + np.float32(-0.3479008383)
    tail = tail * u + np.float32(0.3165127911)
    tail = tail * u + np.float32(-0.02687222437)
    tail = tail * u + np.float32(0.12383147)
    tail = tail * u + np.float32(0.09432833584)
    tail = tail * u + np.float32(0.1002893874)
    tail = e * (tail * u + np.float32(-2.47900554e-05))
    return np.float32(1) - tail if x > 0 else tail, np.float32(0.3989422804) * e
