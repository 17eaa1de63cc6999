"""Winograd's convolution is a convolution: in double to the last digits, in float32 with bounded error."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kernel_cases_winograd import MEMBERS
from nets import Chunk, gradients

from corenet.engine import make_plan
from corenet.errors import ConfigError
from corenet.kernels import conv
from corenet.kernels.backend import numba_problem, select
from corenet.kernels.patch import transform
from corenet.kernels.winograd import filters_work, patches_together, places_of, weights_work
from corenet.nn import Conv2d, CrossEntropy, Flatten, Linear, Sequential

needs_numba = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
ONE = 1, 1, 1


class Layer:
    """A convolution's arrays in double, and what the direct one makes of them."""

    def __init__(self, r, n, H, W, C, K, top=1, left=1, seed=0):
        """r: of the filter; top, left: padding of a 3×3 filter, one more of a 5×5."""
        rng = np.random.default_rng(seed)
        P, Q = H + 2 * top - 2, W + 2 * left - 2
        top, left = top + (r - 3) // 2, left + (r - 3) // 2
        self.around, self.n, self.r = (top, left), n, r
        self.x, self.w, self.b = rng.standard_normal((n, H, W, C)), rng.standard_normal((r, r, C, K)), rng.random(K)
        self.dy = rng.standard_normal((n, P, Q, K))
        padded = np.pad(self.x, ((0, 0), (top, top), (left, left), (0, 0)))[:, None]
        self.y, self.dw, self.dx = np.zeros((n, 1, P, Q, K)), np.zeros((1, r, r, C, K)), np.zeros((n, 1, H, W, C))
        conv.forward(n, padded, self.w[None], self.b, self.y, ONE, ONE, 1)
        conv.backward_weights(n, padded, self.dy[:, None], self.dw, ONE, ONE, 1)
        conv.backward_data(n, self.dy[:, None], self.w[None], self.dx, ONE, (0, top, left), ONE, 1, None)

    def winograd(self, member, kernels, dtype):
        """y, dx, dx by the adjoint form, dw of Winograd's kernels."""
        winograd, sizes = MEMBERS[member], (int(member[0]), self.r, *self.w.shape[2:])
        filters, weights = np.empty(filters_work(*sizes), dtype), np.empty(weights_work(*sizes), dtype)
        x, w, b, dy = (a.astype(dtype) for a in (self.x, self.w, self.b, self.dy))
        y, dx, dx_adjoint, dw = (np.full_like(a, np.nan) for a in (dy, x, x, w))
        for operation, args, work in (
            (winograd.forward, (x, w, b, y), filters),
            (winograd.backward_data, (dy, w, dx), filters),
            (winograd.backward_data_adjoint, (dy, w, dx_adjoint), filters),
            (winograd.backward_weights, (x, dy, dw), weights),
        ):
            call = self.n, *args, *self.around, work
            select(kernels).function(operation, call)(*call)
        return y, dx, dx_adjoint, dw

    def exact(self):
        return self.y[:, 0], self.dx[:, 0], self.dx[:, 0], self.dw[0]


def matrix(line, size):
    """Of a linear line; its columns are what it makes of unit vectors."""
    return np.array(line(list(np.eye(size))))


@pytest.mark.parametrize("member", MEMBERS)
def test_lines_are_winograds(member):
    """m + r − 1 inputs and r weights to m outputs, and the transpose of that."""
    winograd, m, r = MEMBERS[member], int(member[0]), int(member[2])
    assert m == winograd.OUTPUTS and m + r - 1 == winograd.SIZE and r - 1 == winograd.LAST
    rng = np.random.default_rng(0)
    x, w, dy = rng.standard_normal((m + r - 1,) * 2), rng.standard_normal((r, r)), rng.standard_normal((m, m))
    y = transform(winograd.output_line, transform(winograd.data_line, x) * transform(winograd.filter_line, w))
    exact = [[(x[i : i + r, j : j + r] * w).sum() for j in range(m)] for i in range(m)]
    np.testing.assert_allclose(y, exact, atol=1e-13)
    dw = transform(winograd.weight_line, transform(winograd.data_line, x) * transform(winograd.gradient_line, dy))
    exact = [[(x[i : i + m, j : j + m] * dy).sum() for j in range(r)] for i in range(r)]
    np.testing.assert_allclose(dw, exact, atol=1e-13)
    np.testing.assert_array_equal(matrix(winograd.adjoint_line, m + r - 1), matrix(winograd.data_line, m + r - 1).T)
    np.testing.assert_array_equal(matrix(winograd.gradient_line, m), matrix(winograd.output_line, m + r - 1).T)


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize(
    "size", [(1, 3, 3, 1, 1, 0, 0), (2, 5, 9, 3, 20), (3, 8, 8, 17, 4, 2, 0), (2, 26, 26, 5, 6, 0, 1)]
)
def test_it_is_the_direct_convolution(member, size):
    layer = Layer(int(member[2]), *size)
    for got, exact in zip(layer.winograd(member, "numpy", np.float64), layer.exact(), strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-11, atol=1e-11)


# The most that the relative root mean square against double may be: forward and both dx; dw, a sum over all pixels.
BOUNDS = {"2x3": (4e-7, 1.5e-6), "4x3": (1e-6, 5e-6), "4x5": (4.5e-6, 8.5e-6)}


@needs_numba
@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize(
    "size", [(8, 16, 16, 64, 64), (4, 32, 32, 16, 16), (4, 26, 26, 32, 64, 0, 0), (8, 13, 13, 32, 64, 0, 0)]
)
def test_error_in_single_precision(member, size):
    layer = Layer(int(member[2]), *size)
    of_outputs, of_weights = BOUNDS[member]
    bounds = of_outputs, of_outputs, of_outputs, of_weights
    for got, exact, bound in zip(layer.winograd(member, "numba", np.float32), layer.exact(), bounds, strict=True):
        error = np.sqrt(np.square(got - exact).mean() / np.square(exact).mean())
        assert 1e-8 < error < bound


@needs_numba
@pytest.mark.parametrize("member", MEMBERS)
def test_an_image_is_by_itself(member):
    """Patches of several images go together and leave no trace in each other's bits, nor do NaNs beside them."""
    size = int(member[2]), 5, 9, 9, 16, 16
    together = Layer(*size).winograd(member, "numba", np.float32)[:3]
    for i in range(5):
        alone = Layer(*size)
        alone.x[np.arange(5) != i] = alone.dy[np.arange(5) != i] = np.nan
        for of_all, of_one in zip(together, alone.winograd(member, "numba", np.float32), strict=False):
            assert (of_all[i] == of_one[i]).all()


@pytest.mark.parametrize(
    ("n", "size", "together"),
    [
        (16, (11, 11), 72),
        (16, (24, 24), 108),
        (5, (20, 24), 90),
        (3, (50, 50), 169),
        (1, (1, 1), 1),
        (2, (30, 64), 128),
    ],
)
def test_threads_share_whole_images_evenly(n, size, together):
    """Patches of one image overlap in dx: two threads would add to the same pixels, in any order."""
    places = places_of(n, np.empty((n, *size, 1)), 4)
    assert patches_together(n, places) == together
    assert (places[::together, 1:] == 0).all()


# The layer.


def operations(layer, shape):
    plan = make_plan(Sequential(layer, Flatten(), Linear(count(layer, shape), 3)), shape, 2, loss=CrossEntropy())
    found = {step.operation.name.split(".")[0] for step in (*plan.forward, *plan.backward)}
    return {name for name in found if name in ("conv", "depthwise") or name.startswith("winograd")}


def count(layer, shape):
    return int(np.prod(make_plan(layer, shape, 1).output_shape))


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (Conv2d(16, 16, 3, padding=1), (8, 8, 16), "winograd_4x3"),
        (Conv2d(16, 16, 3), (6, 6, 16), "winograd_4x3"),
        (Conv2d(16, 16, 3, padding="same"), (7, 9, 16), "winograd_4x3"),
        (Conv2d(16, 16, 3, algorithm="direct"), (6, 6, 16), "conv"),
        (Conv2d(2, 3, 3, algorithm="winograd4"), (6, 6, 2), "winograd_4x3"),
        (Conv2d(15, 16, 3), (6, 6, 15), "conv"),
        (Conv2d(16, 15, 3), (6, 6, 16), "conv"),
        (Conv2d(16, 16, 3), (4, 5, 16), "conv"),  # of 16 places in a patch, 6 are used
        (Conv2d(16, 16, 3, stride=2), (9, 9, 16), "conv"),
        (Conv2d(16, 16, 3, dilation=2), (9, 9, 16), "conv"),
        (Conv2d(32, 32, 3, groups=2), (9, 9, 32), "conv"),
        (Conv2d(32, 32, 3, groups=32), (9, 9, 32), "depthwise"),
        (Conv2d(16, 16, 3, algorithm="winograd2"), (4, 5, 16), "winograd_2x3"),
        (Conv2d(16, 16, 5), (9, 9, 16), "winograd_4x5"),
        (Conv2d(16, 16, 5, padding="same"), (7, 5, 16), "winograd_4x5"),
        (Conv2d(16, 16, 5), (6, 6, 16), "conv"),  # of 16 places in a patch, 4 are used
        (Conv2d(3, 2, 5, algorithm="winograd4"), (9, 9, 3), "winograd_4x5"),
        (Conv2d(16, 16, 5, algorithm="direct"), (9, 9, 16), "conv"),
        (Conv2d(15, 16, 5), (9, 9, 15), "conv"),
        (Conv2d(16, 16, 5, stride=(1, 2)), (9, 9, 16), "conv"),
        (Conv2d(16, 16, (3, 5)), (9, 9, 16), "conv"),
        (Conv2d(16, 16, 7), (9, 9, 16), "conv"),
    ],
)
def test_where_it_is_taken(layer, shape, expected):
    assert operations(layer, shape) == {expected}


@pytest.mark.parametrize(
    ("filter_size", "size", "padding", "algorithm", "adjoint"),
    [
        (3, (13, 13), 0, "winograd4", True),
        (3, (26, 26), 0, "winograd4", True),
        (3, (15, 15), 0, "winograd4", False),  # as many patches
        (3, (28, 28), 0, "winograd4", False),
        (3, (15, 28), 0, "winograd4", False),
        (3, (14, 28), 0, "winograd4", True),  # fewer one way
        (3, (15, 15), 1, "winograd4", False),
        (3, (16, 16), 1, "winograd4", False),
        (3, (16, 16), 2, "winograd4", False),  # more
        (3, (15, 15), 0, "winograd2", True),
        (3, (15, 15), 1, "winograd2", False),
        (5, (28, 28), 0, "winograd4", True),
        (5, (28, 28), 2, "winograd4", False),
        (5, (17, 17), 1, "winograd4", True),
        (5, (16, 16), 1, "winograd4", False),
    ],
)
def test_the_data_gradient_takes_the_form_with_fewer_patches(filter_size, size, padding, algorithm, adjoint):
    layer = Conv2d(2, 3, filter_size, padding=padding, algorithm=algorithm)
    net = Sequential(Conv2d(2, 2, 1), layer, Flatten(), Linear(count(layer, (*size, 2)), 3))
    names = [step.operation.name for step in make_plan(net, (*size, 2), 2, loss=CrossEntropy()).backward]
    forms = [name.partition(".")[2] for name in names if name.startswith("winograd") and "data" in name]
    assert forms == ["backward_data_adjoint" if adjoint else "backward_data"]


def test_the_algorithm_changes_no_result():
    """In double the gradients of a net are those of the direct convolution."""
    found = []
    for small, large in (("direct", "direct"), ("winograd4", "winograd4"), ("winograd2", "winograd4")):
        layers = Conv2d(2, 5, 5, padding=2, algorithm=large), Conv2d(5, 4, 3, algorithm=small)
        net = Sequential(*layers, Conv2d(4, 4, 5, padding=2, algorithm=large), Flatten(), Linear(3 * 5 * 4, 3))
        rng = np.random.default_rng(0)
        images, labels = rng.standard_normal((5, 5, 7, 2)), rng.integers(0, 3, 5)
        state = Chunk(make_plan(net, (5, 7, 2), 2, 5, loss=CrossEntropy(), dtype="float64")).state
        found.append(gradients(net, images, labels, [2, 2, 1], state=state))
    for loss, of_parameters in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-12)
        for name, value in found[0][1].items():
            np.testing.assert_allclose(of_parameters[name], value, atol=1e-12, err_msg=name)


def test_what_it_cannot_do_is_refused():
    expected = "expected one of 'auto', 'direct', 'winograd4', 'winograd2', got 'fft'"
    with pytest.raises(ConfigError, match=rf"algorithm=…\): {expected}"):
        Conv2d(1, 1, 3, algorithm="fft")
    for bad in ({"kernel_size": (3, 5)}, {"stride": 2}, {"dilation": 2}, {"groups": 2}):
        with pytest.raises(ConfigError, match=r"winograd4.*a 3×3 or 5×5 filter, stride 1, dilation 1, groups 1"):
            Conv2d(2, 2, **{"kernel_size": 3, "algorithm": "winograd4", **bad})
    with pytest.raises(ConfigError, match=r"winograd2.*a 3×3 filter, stride 1, dilation 1, groups 1"):
        Conv2d(2, 2, 5, algorithm="winograd2")


@needs_numba
def test_nothing_outside_the_arrays_is_read():
    """In a process that a read beyond them would end."""
    worker = str(Path(__file__).with_name("tile_worker.py"))
    subprocess.run([sys.executable, "-W", "error", worker, "winograd"], check=True)
