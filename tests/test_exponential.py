"""exp, expm1, tanh and the normal distribution in compiled kernels: right to a few roundings at every size."""

import math

import numpy as np
import pytest

from corenet.kernels import activation
from corenet.kernels.backend import numba_problem

pytestmark = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")

SMALLEST, EPS = np.finfo(np.float32).tiny, np.finfo(np.float32).eps
X = np.concatenate([np.linspace(-110, 110, 20_001), np.linspace(-1, 1, 20_001), -(10.0 ** np.arange(-30, 0))])
X = X.astype(np.float32)[None]


def phi(x):
    return np.vectorize(math.erfc)(-x * math.sqrt(0.5)) / 2


@pytest.mark.parametrize(
    "operation, settings, exact, roundings",
    [
        (activation.sigmoid_forward, (), lambda x: 1 / (1 + np.exp(-x)), 4),
        (activation.tanh_forward, (), np.tanh, 3),
        (activation.elu_forward, (1.0,), lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), 2),
        (activation.gelu_forward, (False,), lambda x: x * phi(x), 6 + X.astype(float) ** 2),  # of exp(−x²/2)
    ],
    ids=["exp", "tanh", "expm1", "normal"],
)
def test_every_value_is_right_to_a_few_roundings(operation, settings, exact, roundings):
    from corenet.kernels.numba_backend import compile_for

    y = np.full_like(X, np.nan)
    args = (1, X, y, *settings)
    compile_for(operation, args, parallel=False)(*args)
    right = exact(X.astype(float))
    assert (np.abs(y - right) <= roundings * EPS * np.abs(right) + SMALLEST * (1 + np.abs(X))).all()
