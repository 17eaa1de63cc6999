"""Activations beyond ReLU, PyTorch's definitions; finite for any finite input, and NaN passes through.

Arrays are (chunk, features), for softmax (chunk, positions, C). A backward reads x, or y where the derivative is
simpler in y; that of GELU computes Φ again rather than keep it.
"""

import math

import numpy as np

from .exponential import exp_down, expm1_down, normal32, tanh32
from .operation import device, operation, prange

FAR = 50.0  # where every Φ and its slope have reached their limits: beyond it x² could overflow
ROOT_HALF = math.sqrt(0.5)
NORMAL = 1 / math.sqrt(2 * math.pi)  # the density of the standard normal distribution at 0
TANH_SCALE, TANH_CUBIC = math.sqrt(8 / math.pi), 0.044715  # of GELU's approximation; (1 + tanh(v))/2 is σ(2v)

_erfc = np.vectorize(math.erfc, otypes=[np.float64])


@operation
def leaky_relu_forward(n, x, y, slope):
    """y = x where x > 0, else slope·x (Maas, Hannun & Ng 2013)."""
    y[:n] = np.where(x[:n] > 0, x[:n], slope * x[:n])


@leaky_relu_forward.nest
def leaky_relu_forward_nest(n, x, y, slope):
    low = np.float32(slope)
    for i in prange(n):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] if x[i, j] > 0 else low * x[i, j]


@operation
def leaky_relu_backward(n, x, dy, dx, slope):
    """dx = dy where x > 0, else slope·dy."""
    dx[:n] = np.where(x[:n] > 0, dy[:n], slope * dy[:n])


@leaky_relu_backward.nest
def leaky_relu_backward_nest(n, x, dy, dx, slope):
    low = np.float32(slope)
    for i in prange(n):
        for j in range(x.shape[1]):
            dx[i, j] = dy[i, j] if x[i, j] > 0 else low * dy[i, j]


@operation
def elu_forward(n, x, y, alpha):
    """y = x where x > 0, else alpha·(exp(x) − 1) (Clevert, Unterthiner & Hochreiter 2016)."""
    y[:n] = np.where(x[:n] > 0, x[:n], alpha * np.expm1(np.minimum(x[:n], 0)))


@elu_forward.nest
def elu_forward_nest(n, x, y, alpha):
    a = np.float32(alpha)
    for i in prange(n):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] if x[i, j] > 0 else a * expm1_down(x[i, j])


@operation
def elu_backward(n, x, dy, dx, alpha):
    """dx = dy where x > 0, else dy·alpha·exp(x)."""
    dx[:n] = dy[:n] * np.where(x[:n] > 0, 1, alpha * np.exp(np.minimum(x[:n], 0)))


@elu_backward.nest
def elu_backward_nest(n, x, dy, dx, alpha):
    a = np.float32(alpha)
    for i in prange(n):
        for j in range(x.shape[1]):
            dx[i, j] = dy[i, j] if x[i, j] > 0 else dy[i, j] * (a * exp_down(x[i, j]))


def _sigmoid(x):
    """1/(1 + exp(−x)) without ever taking exp of a positive number."""
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


@device
def sigmoid(x):
    """`_sigmoid` of one float32."""
    e = exp_down(-abs(x))
    return (e if x < 0 else np.float32(1)) / (np.float32(1) + e)


def _phi(x, tanh):
    """Φ of GELU and its derivative: that of the normal distribution, or its approximation by (1 + tanh)/2."""
    x = np.clip(x, -FAR, FAR)
    if tanh:
        near = _sigmoid(TANH_SCALE * x * (1 + TANH_CUBIC * x * x))
        return near, near * (1 - near) * (TANH_SCALE * (1 + 3 * TANH_CUBIC * x * x))
    return _erfc(-x * ROOT_HALF) / 2, NORMAL * np.exp(-x * x / 2)


@device
def phi_by_tanh(x):
    """The approximation in `_phi`, of one float32."""
    x = np.float32(FAR) if x > np.float32(FAR) else x
    x = np.float32(-FAR) if x < np.float32(-FAR) else x
    one, scale, cubic = np.float32(1), np.float32(TANH_SCALE), np.float32(TANH_CUBIC)
    near = sigmoid(scale * x * (one + cubic * x * x))
    return near, near * (one - near) * (scale * (one + np.float32(3) * cubic * x * x))


@operation
def gelu_forward(n, x, y, tanh):
    """y = x·Φ(x) (Hendrycks & Gimpel 2016): Φ of the normal distribution, or with `tanh` its approximation."""
    y[:n] = x[:n] * _phi(x[:n], tanh)[0]


@gelu_forward.nest
def gelu_forward_nest(n, x, y, tanh):
    for i in prange(n):
        if tanh:
            for j in range(x.shape[1]):
                y[i, j] = x[i, j] * phi_by_tanh(x[i, j])[0]
        else:
            for j in range(x.shape[1]):
                y[i, j] = x[i, j] * normal32(x[i, j])[0]


@operation
def gelu_backward(n, x, dy, dx, tanh):
    """dx = dy·(Φ(x) + x·Φ′(x))."""
    value, slope = _phi(x[:n], tanh)
    dx[:n] = dy[:n] * (value + x[:n] * slope)


@gelu_backward.nest
def gelu_backward_nest(n, x, dy, dx, tanh):
    for i in prange(n):
        if tanh:
            for j in range(x.shape[1]):
                value, slope = phi_by_tanh(x[i, j])
                dx[i, j] = dy[i, j] * (value + x[i, j] * slope)
        else:
            for j in range(x.shape[1]):
                value, slope = normal32(x[i, j])
                dx[i, j] = dy[i, j] * (value + x[i, j] * slope)


@operation
def silu_forward(n, x, y):
    """y = x·σ(x), also called swish (Elfwing, Uchibe & Doya 2018)."""
    y[:n] = x[:n] * _sigmoid(x[:n])


@silu_forward.nest
def silu_forward_nest(n, x, y):
    for i in prange(n):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] * sigmoid(x[i, j])


@operation
def silu_backward(n, x, dy, dx):
    """dx = dy·σ·(1 + x·(1 − σ)), 1 − σ(x) being σ(−x)."""
    dx[:n] = dy[:n] * (_sigmoid(x[:n]) * (1 + x[:n] * _sigmoid(-x[:n])))


@silu_backward.nest
def silu_backward_nest(n, x, dy, dx):
    for i in prange(n):
        for j in range(x.shape[1]):
            dx[i, j] = dy[i, j] * (sigmoid(x[i, j]) * (np.float32(1) + x[i, j] * sigmoid(-x[i, j])))


@operation
def sigmoid_forward(n, x, y):
    """y = 1/(1 + exp(−x))."""
    y[:n] = _sigmoid(x[:n])


@sigmoid_forward.nest
def sigmoid_forward_nest(n, x, y):
    for i in prange(n):
        for j in range(x.shape[1]):
            y[i, j] = sigmoid(x[i, j])


@operation
def sigmoid_backward(n, y, dy, dx):
    """dx = dy·y·(1 − y)."""
    dx[:n] = dy[:n] * (y[:n] * (1 - y[:n]))


@sigmoid_backward.nest
def sigmoid_backward_nest(n, y, dy, dx):
    for i in prange(n):
        for j in range(y.shape[1]):
            dx[i, j] = dy[i, j] * (y[i, j] * (np.float32(1) - y[i, j]))


@operation
def tanh_forward(n, x, y):
    """y = tanh(x)."""
    np.tanh(x[:n], out=y[:n])


@tanh_forward.nest
def tanh_forward_nest(n, x, y):
    for i in prange(n):
        for j in range(x.shape[1]):
            y[i, j] = tanh32(x[i, j])


@operation
def tanh_backward(n, y, dy, dx):
    """dx = dy·(1 − y²)."""
    dx[:n] = dy[:n] * (1 - y[:n] * y[:n])


@tanh_backward.nest
def tanh_backward_nest(n, y, dy, dx):
    for i in prange(n):
        for j in range(y.shape[1]):
            dx[i, j] = dy[i, j] * (np.float32(1) - y[i, j] * y[i, j])


@operation
def softmax_forward(n, x, y):
    """y = exp(x)/Σ exp(x) along the last axis, of x minus its largest, so that nothing overflows."""
    exponentials = np.exp(x[:n] - x[:n].max(axis=-1, keepdims=True))
    y[:n] = exponentials / exponentials.sum(axis=-1, keepdims=True)


@softmax_forward.nest
def softmax_forward_nest(n, x, y):
    for i in prange(n):
        for p in range(x.shape[1]):
            largest = x[i, p, 0]
            for c in range(1, x.shape[2]):
                if x[i, p, c] > largest:
                    largest = x[i, p, c]
            total = np.float32(0)
            for c in range(x.shape[2]):
                y[i, p, c] = exp_down(x[i, p, c] - largest)
                total += y[i, p, c]
            for c in range(x.shape[2]):
                y[i, p, c] /= total


@operation
def softmax_backward(n, y, dy, dx):
    """dx = y·(dy − Σ dy·y) along the last axis."""
    dx[:n] = y[:n] * (dy[:n] - (dy[:n] * y[:n]).sum(axis=-1, keepdims=True))


@softmax_backward.nest
def softmax_backward_nest(n, y, dy, dx):
    for i in prange(n):
        for p in range(y.shape[1]):
            total = np.float32(0)
            for c in range(y.shape[2]):
                total += dy[i, p, c] * y[i, p, c]
            for c in range(y.shape[2]):
                dx[i, p, c] = y[i, p, c] * (dy[i, p, c] - total)
