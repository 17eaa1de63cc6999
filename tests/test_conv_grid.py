"""Windows over images at every kernel, stride and padding: against the definition, and as adjoints of each other."""

import numpy as np
import pytest
from grid import PRODUCTS, Geometry, check_convolution, check_pooling, check_product, geometries
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from corenet.kernels import conv2d, pool2d
from corenet.kernels.backend import Backend, numba_problem

needs_numba = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
NUMBA = Backend("numba", 1, "test")
CONVOLUTIONS = geometries(0)
POOLINGS = geometries(1, pooling=True)


def compiled(operation, args):
    NUMBA.function(operation, tuple(args))(*args)


def definition(operation, args):
    operation.reference(*args)


def nest(operation, args):
    operation.loops(*args)


def test_the_grid_has_the_difficult_places():
    every = {(k, s, p) for k in range(1, 6) for s in range(1, 5) for p in range(4)}
    for grid, wanted in ((CONVOLUTIONS, every), (POOLINGS, {(k, s, p) for k, s, p in every if 2 * p <= k})):
        heights = [(g.H, g.kernel[0], g.stride[0], g.padding[0]) for g in grid]
        widths = [(g.W, g.kernel[1], g.stride[1], g.padding[1]) for g in grid]
        assert {side[1:] for side in heights} == {side[1:] for side in widths} == wanted
        assert sum((size + 2 * p - k) % s != 0 for size, k, s, p in heights) > 20  # pixels that no window covers
        assert any(g.C == 1 for g in grid) and any(g.K == 1 for g in grid) and any(g.n < g.chunk for g in grid)
        assert any(g.H == 1 and g.W > 1 for g in grid) and any(g.output == (1, 1) for g in grid)


@needs_numba
def test_convolutions_agree_with_the_definition_and_stay_within_their_arrays():
    for g in CONVOLUTIONS:
        check_convolution(g, compiled)


@needs_numba
def test_poolings_agree_with_the_definition_and_stay_within_their_arrays():
    for g in POOLINGS:
        check_pooling(g, compiled)


@needs_numba
@pytest.mark.parametrize("samples, inputs, outputs", PRODUCTS)
def test_dense_products_agree_with_the_definition_and_do_not_depend_on_shards(samples, inputs, outputs):
    check_product(samples, inputs, outputs, compiled)


TINY = [
    Geometry(2, 1, 3, 2, 1, 2, (2, 1), (1, 2), (1, 0)),
    Geometry(1, 1, 2, 3, 2, 17, (1, 2), (3, 1), (0, 1)),
    Geometry(2, 2, 4, 1, 17, 1, (3, 2), (2, 4), (2, 1)),
    Geometry(1, 1, 3, 3, 1, 1, (3, 3), (1, 1), (0, 0)),
]


@pytest.mark.parametrize("g", TINY, ids=str)
def test_product_nests_run_as_plain_python(g):
    """The loops without a compiler, in double: as close to the definition as that is, with Python's bounds checks."""
    check_convolution(g, nest, np.float64)
    check_product(g.chunk, 3, g.K, nest, np.float64)


def test_pooling_nests_run_as_plain_python():
    for g in POOLINGS[:40:8]:
        check_pooling(g, nest)


@pytest.mark.parametrize("run", [definition, pytest.param(compiled, marks=needs_numba)])
@pytest.mark.parametrize("place", range(9))
def test_not_a_number_wins_every_maximum(place, run):
    """Wherever in its window it is, with infinities beside it; of two NaNs the first."""
    x = np.array([np.inf, 1, -np.inf, 3, 5, np.inf, 2, 2, 0], np.float32).reshape(1, 3, 3, 1)
    x.flat[place], x.flat[8] = np.nan, np.nan
    y, which = np.zeros((1, 1, 1, 1), np.float32), np.full((1, 1, 1, 1), 255, np.uint8)
    run(pool2d.max_forward, [1, x, y, which, (3, 3), (3, 3), (0, 0)])
    assert np.isnan(y).all() and which.item() == place


# Adjoints: the three convolutions are one trilinear form, seen from three sides.

RUNNERS = [
    pytest.param(definition, np.float64, id="numpy"),
    pytest.param(compiled, np.float32, id="numba", marks=needs_numba),
]


@st.composite
def windows(draw, pooling=False):
    sides = []
    for _ in range(2):
        k, s, size = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 9))
        p = draw(st.integers(0, k // 2 if pooling else 3))
        assume(size + 2 * p >= k)
        sides.append((size, k, s, p))
    (H, kh, sh, ph), (W, kw, sw, pw) = sides
    n, C, K = draw(st.integers(1, 3)), draw(st.sampled_from([1, 3, 17])), draw(st.sampled_from([1, 5, 16, 18]))
    return Geometry(n, n, H, W, C, K, (kh, kw), (sh, sw), (ph, pw)), draw(st.integers(0, 2**32 - 1))


def inner(a, b):
    return float((a.astype(np.float64) * b.astype(np.float64)).sum())


def agree(a, b, scale, terms, dtype):
    assert abs(a - b) <= 2 * np.sqrt(terms + 4) * np.finfo(dtype).eps * scale, (a, b)


@pytest.mark.parametrize("run, dtype", RUNNERS)
@settings(max_examples=150, deadline=None, derandomize=True)
@given(drawn=windows())
def test_gradients_of_convolution_are_its_adjoints(run, dtype, drawn):
    g, seed = drawn
    rng = np.random.default_rng(seed)
    (R, S), (P, Q), (ph, pw) = g.kernel, g.output, g.padding
    x = rng.standard_normal((g.n, g.H, g.W, g.C)).astype(dtype)
    w = rng.standard_normal((R, S, g.C, g.K)).astype(dtype)
    dy = rng.standard_normal((g.n, P, Q, g.K)).astype(dtype)
    padded = np.pad(x, ((0, 0), (ph, ph), (pw, pw), (0, 0)))
    y, dx, dw = np.full_like(dy, np.nan), np.full_like(x, np.nan), np.full_like(w, np.nan)
    none = np.zeros(0, dtype)
    run(conv2d.forward, [g.n, padded, w, none, y, g.stride])
    work = np.full(conv2d.backward_data_work(dx.shape, w.shape, g.stride, g.padding), np.nan, dtype)
    run(conv2d.backward_data, [g.n, dy, w, dx, g.stride, g.padding, work])
    run(conv2d.backward_weights, [g.n, padded, dy, dw, none, g.stride])
    scale = np.abs(y).ravel() @ np.abs(dy).ravel() + np.abs(dw).sum() + np.abs(dx).sum()
    terms = R * S * max(g.C, g.K) + g.n * P * Q
    agree(inner(y, dy), inner(x, dx), scale, terms, dtype)
    agree(inner(y, dy), inner(w, dw), scale, terms, dtype)


@pytest.mark.parametrize("run, dtype", RUNNERS)
@settings(max_examples=150, deadline=None, derandomize=True)
@given(drawn=windows(pooling=True))
def test_gradients_of_poolings_are_their_adjoints(run, dtype, drawn):
    """Pooling is linear once it is settled who wins: ⟨pool(x), dy⟩ = ⟨x, gradient⟩."""
    g, seed = drawn
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((g.n, g.H, g.W, g.C)).astype(dtype)
    dy = rng.standard_normal((g.n, *g.output, g.C)).astype(dtype)
    y, dx, which = np.full_like(dy, np.nan), np.full_like(x, np.nan), np.full(dy.shape, 255, np.uint8)
    window, terms = (g.kernel, g.stride, g.padding), g.kernel[0] * g.kernel[1]
    run(pool2d.average_forward, [g.n, x, y, *window])
    run(pool2d.average_backward, [g.n, dy, dx, *window])
    scale = np.abs(y).ravel() @ np.abs(dy).ravel() + np.abs(x).ravel() @ np.abs(dx).ravel()
    agree(inner(y, dy), inner(x, dx), scale, terms, dtype)
    run(pool2d.max_forward, [g.n, x, y, which, *window])
    run(pool2d.max_backward, [g.n, dy, which, dx, *window])
    scale = np.abs(y).ravel() @ np.abs(dy).ravel() + np.abs(x).ravel() @ np.abs(dx).ravel()
    agree(inner(y, dy), inner(x, dx), scale, terms, dtype)
