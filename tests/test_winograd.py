"""Winograd's convolution is a convolution: in double to the last digits, in float32 with bounded error."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from nets import Chunk, gradients

from corenet.engine import make_plan
from corenet.errors import ConfigError
from corenet.kernels import conv, winograd
from corenet.kernels.backend import numba_problem, select
from corenet.kernels.patch import transform
from corenet.nn import Conv2d, CrossEntropy, Flatten, Linear, Sequential

needs_numba = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
ONE = 1, 1, 1


class Layer:
    """A convolution's arrays in double, and what the direct one makes of them."""

    def __init__(self, n, H, W, C, K, top=1, left=1, seed=0):
        rng = np.random.default_rng(seed)
        P, Q = H + 2 * top - 2, W + 2 * left - 2
        self.around, self.n = (top, left), n
        self.x, self.w, self.b = rng.standard_normal((n, H, W, C)), rng.standard_normal((3, 3, C, K)), rng.random(K)
        self.dy = rng.standard_normal((n, P, Q, K))
        padded = np.pad(self.x, ((0, 0), (top, top), (left, left), (0, 0)))[:, None]
        self.y, self.dw, self.dx = np.zeros((n, 1, P, Q, K)), np.zeros((1, 3, 3, C, K)), np.zeros((n, 1, H, W, C))
        conv.forward(n, padded, self.w[None], self.b, self.y, ONE, ONE, 1)
        conv.backward_weights(n, padded, self.dy[:, None], self.dw, ONE, ONE, 1)
        conv.backward_data(n, self.dy[:, None], self.w[None], self.dx, ONE, (0, top, left), ONE, 1, None)

    def winograd(self, kernels, dtype):
        """y, dx, dw of Winograd's kernels."""
        x, w, b, dy = (a.astype(dtype) for a in (self.x, self.w, self.b, self.dy))
        y, dx, dw = np.full_like(dy, np.nan), np.full_like(x, np.nan), np.full_like(w, np.nan)
        for operation, args in (
            (winograd.forward, (x, w, b, y)),
            (winograd.backward_data, (dy, w, dx)),
            (winograd.backward_weights, (x, dy, dw)),
        ):
            call = self.n, *args, *self.around
            select(kernels).function(operation, call)(*call)
        return y, dx, dw

    def exact(self):
        return self.y[:, 0], self.dx[:, 0], self.dw[0]


def test_lines_are_winograds():
    """Six inputs and three weights to four outputs, and the transpose of that."""
    rng = np.random.default_rng(0)
    x, w, dy = rng.standard_normal((6, 6)), rng.standard_normal((3, 3)), rng.standard_normal((4, 4))
    y = transform(winograd.output_line, transform(winograd.data_line, x) * transform(winograd.filter_line, w))
    exact = [[(x[i : i + 3, j : j + 3] * w).sum() for j in range(4)] for i in range(4)]
    np.testing.assert_allclose(y, exact, atol=1e-13)
    dw = transform(winograd.weight_line, transform(winograd.data_line, x) * transform(winograd.gradient_line, dy))
    exact = [[(x[i : i + 4, j : j + 4] * dy).sum() for j in range(3)] for i in range(3)]
    np.testing.assert_allclose(dw, exact, atol=1e-13)


@pytest.mark.parametrize(
    "size", [(1, 3, 3, 1, 1, 0, 0), (2, 5, 9, 3, 20), (3, 8, 8, 17, 4, 2, 0), (2, 26, 26, 5, 6, 0, 1)]
)
def test_it_is_the_direct_convolution(size):
    layer = Layer(*size)
    for got, exact in zip(layer.winograd("numpy", np.float64), layer.exact(), strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-11, atol=1e-11)


@needs_numba
@pytest.mark.parametrize("size", [(8, 16, 16, 64, 64), (4, 32, 32, 16, 16), (4, 26, 26, 32, 64, 0, 0)])
def test_error_in_single_precision(size):
    """Relative root mean square against double: forward and dx at most 1e-6, dw, a sum over all pixels, 5e-6."""
    layer = Layer(*size)
    bounds = (1e-6, 1e-6, 5e-6)
    for got, exact, bound in zip(layer.winograd("numba", np.float32), layer.exact(), bounds, strict=True):
        error = np.sqrt(np.square(got - exact).mean() / np.square(exact).mean())
        assert 1e-8 < error < bound


@needs_numba
def test_an_image_is_by_itself():
    """Patches of several images go together and leave no trace in each other's bits, nor do NaNs beside them."""
    layer = Layer(5, 9, 9, 16, 16)
    y, dx, _ = layer.winograd("numba", np.float32)
    for i in range(5):
        alone = Layer(5, 9, 9, 16, 16)
        alone.x[np.arange(5) != i] = alone.dy[np.arange(5) != i] = np.nan
        y_alone, dx_alone, _ = alone.winograd("numba", np.float32)
        assert (y[i] == y_alone[i]).all() and (dx[i] == dx_alone[i]).all()


# The layer.


def operations(layer, shape):
    plan = make_plan(Sequential(layer, Flatten(), Linear(count(layer, shape), 3)), shape, 2, loss=CrossEntropy())
    return {step.operation.name.split(".")[0] for step in plan.forward} & {"conv", "depthwise", "winograd"}


def count(layer, shape):
    return int(np.prod(make_plan(layer, shape, 1).output_shape))


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (Conv2d(16, 16, 3, padding=1), (8, 8, 16), "winograd"),
        (Conv2d(16, 16, 3), (6, 6, 16), "winograd"),
        (Conv2d(16, 16, 3, padding="same"), (7, 9, 16), "winograd"),
        (Conv2d(16, 16, 3, algorithm="direct"), (6, 6, 16), "conv"),
        (Conv2d(2, 3, 3, algorithm="winograd4"), (6, 6, 2), "winograd"),
        (Conv2d(15, 16, 3), (6, 6, 15), "conv"),
        (Conv2d(16, 15, 3), (6, 6, 16), "conv"),
        (Conv2d(16, 16, 3), (4, 5, 16), "conv"),  # of 16 places in a patch, 6 are used
        (Conv2d(16, 16, 3, stride=2), (9, 9, 16), "conv"),
        (Conv2d(16, 16, 3, dilation=2), (9, 9, 16), "conv"),
        (Conv2d(32, 32, 3, groups=2), (9, 9, 32), "conv"),
        (Conv2d(32, 32, 3, groups=32), (9, 9, 32), "depthwise"),
        (Conv2d(16, 16, 5), (9, 9, 16), "conv"),
    ],
)
def test_where_it_is_taken(layer, shape, expected):
    assert operations(layer, shape) == {expected}


def test_the_algorithm_changes_no_result():
    """In double the gradients of a net are those of the direct convolution."""
    found = []
    for algorithm in ("direct", "winograd4"):
        layers = Conv2d(2, 5, 3, padding=1, algorithm=algorithm), Conv2d(5, 4, 3, algorithm=algorithm)
        net = Sequential(*layers, Flatten(), Linear(3 * 5 * 4, 3))
        rng = np.random.default_rng(0)
        images, labels = rng.standard_normal((5, 5, 7, 2)), rng.integers(0, 3, 5)
        state = Chunk(make_plan(net, (5, 7, 2), 2, 5, loss=CrossEntropy(), dtype="float64")).state
        found.append(gradients(net, images, labels, [2, 2, 1], state=state))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    for name, value in found[0][1].items():
        np.testing.assert_allclose(found[1][1][name], value, atol=1e-13, err_msg=name)


def test_what_it_cannot_do_is_refused():
    with pytest.raises(ConfigError, match=r"algorithm=…\): expected one of 'auto', 'direct', 'winograd4', got 'fft'"):
        Conv2d(1, 1, 3, algorithm="fft")
    for bad in ({"kernel_size": 5}, {"stride": 2}, {"dilation": 2}, {"groups": 2}):
        with pytest.raises(ConfigError, match=r"winograd4.*a 3×3 filter, stride 1, dilation 1, groups 1"):
            Conv2d(2, 2, **{"kernel_size": 3, "algorithm": "winograd4", **bad})


@needs_numba
def test_nothing_outside_the_arrays_is_read():
    """In a process that a read beyond them would end."""
    worker = str(Path(__file__).with_name("tile_worker.py"))
    subprocess.run([sys.executable, "-W", "error", worker, "winograd"], check=True)
