"""Operations on each element alone; arrays are (chunk, features). NaN passes through, so that it can be noticed."""

import numpy as np

from .operation import operation, prange


@operation
def relu_forward(n, x, y):
    """y = max(x, 0)."""
    np.maximum(x[:n], 0, out=y[:n])


@relu_forward.nest
def relu_forward_nest(n, x, y):
    for i in prange(n):
        for j in range(x.shape[1]):
            y[i, j] = np.float32(0) if x[i, j] < 0 else x[i, j]


@operation
def relu_backward(n, y, dy, dx):
    """dx = dy where y > 0, else 0 (the derivative at 0 is taken as 0)."""
    dx[:n] = np.where(y[:n] > 0, dy[:n], 0)


@relu_backward.nest
def relu_backward_nest(n, y, dy, dx):
    for i in prange(n):
        for j in range(y.shape[1]):
            dx[i, j] = dy[i, j] if y[i, j] > 0 else np.float32(0)


@operation
def add(n, a, b, y):
    """y = a + b: where branches meet (forward), and where a value was used twice (backward)."""
    np.add(a[:n], b[:n], out=y[:n])


@add.nest
def add_nest(n, a, b, y):
    for i in prange(n):
        for j in range(y.shape[1]):
            y[i, j] = a[i, j] + b[i, j]
