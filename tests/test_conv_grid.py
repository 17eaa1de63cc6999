"""Windows over images at every kernel, stride and padding: against the definition, and as adjoints of each other."""

from math import prod

import numpy as np
import pytest
from grid import DEPTHWISE, PRODUCTS, Geometry, check_convolution, check_pooling, check_product, geometries
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from corenet.kernels import conv, depthwise, pool
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
        sides = [list(zip(g.size, g.kernel, g.stride, g.padding, strict=True)) for g in grid]
        third = len(sides) // 3
        images, volumes, sequences = sides[:third], sides[third : 2 * third], sides[2 * third :]
        for some, first in ((images, 1), (volumes, 0), (sequences, 2)):
            assert all({side[axis][1:] for side in some} == wanted for axis in range(first, 3))
            assert all(side[axis] == (1, 1, 1, 0) for side in some for axis in range(first))
        assert sum((size + 2 * p - k) % s != 0 for _, (size, k, s, p), _ in sides) > 20  # pixels that no window covers
        assert any(g.C == 1 for g in grid) and any(g.K == 1 for g in grid) and any(g.n < g.chunk for g in grid)
        assert any(g.size[1] == 1 and g.size[2] > 1 for g in grid) and any(g.output == (1, 1, 1) for g in grid)
    for dims in range(3):
        assert {g.dilation[dims] for g in CONVOLUTIONS} == {1, 2, 3}
    kinds = {(g.groups == 1, g.groups == 2, g.groups == g.C, g.C == g.K, max(g.dilation) > 1) for g in CONVOLUTIONS}
    assert len(kinds) > 12 and sum(1 < g.groups == g.C == g.K for g in CONVOLUTIONS) > 10


@needs_numba
def test_convolutions_agree_with_the_definition_and_stay_within_their_arrays():
    for g in CONVOLUTIONS:
        check_convolution(g, compiled)


@needs_numba
@pytest.mark.parametrize("g", DEPTHWISE, ids=str)
def test_depthwise_convolutions_wider_than_their_tiles_agree_too(g):
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
    Geometry(2, 1, (1, 3, 2), 1, 2, (1, 2, 1), (1, 1, 2), (0, 1, 0)),
    Geometry(1, 1, (2, 2, 3), 2, 17, (2, 1, 2), (1, 3, 1), (1, 0, 1)),
    Geometry(2, 2, (1, 4, 1), 17, 1, (1, 3, 2), (1, 2, 4), (0, 2, 1)),
    Geometry(1, 1, (1, 3, 3), 1, 1, (1, 3, 3), (1, 1, 1), (0, 0, 0)),
    Geometry(2, 1, (1, 3, 5), 4, 6, (1, 2, 3), (1, 1, 2), (0, 1, 1), (1, 2, 2), 2),
    Geometry(1, 1, (1, 1, 5), 3, 3, (1, 1, 3), (1, 1, 2), (0, 0, 1), (1, 1, 2), 3),
    Geometry(2, 2, (6, 7, 5), 4, 4, (2, 3, 2), (3, 2, 1), (1, 2, 0), (2, 1, 3), 2),
    Geometry(2, 1, (7, 5, 6), 3, 3, (3, 2, 2), (2, 1, 3), (2, 0, 1), (1, 3, 2), 3),
    Geometry(1, 1, (5, 4, 7), 2, 3, (2, 2, 3), (1, 3, 2), (0, 1, 2), (3, 2, 1)),
]


@pytest.mark.parametrize("g", TINY, ids=str)
def test_product_nests_run_as_plain_python(g):
    """The loops without a compiler, in double: as close to the definition as that is, with Python's bounds checks."""
    check_convolution(g, nest, np.float64)
    check_product(g.chunk, 3, g.K, nest, np.float64)


def test_pooling_nests_run_as_plain_python():
    for g in POOLINGS[::40]:
        check_pooling(g, nest)


@pytest.mark.parametrize("run", [definition, pytest.param(compiled, marks=needs_numba)])
@pytest.mark.parametrize("place", range(9))
def test_not_a_number_wins_every_maximum(place, run):
    """Wherever in its window it is, with infinities beside it; of two NaNs the first."""
    x = np.array([np.inf, 1, -np.inf, 3, 5, np.inf, 2, 2, 0], np.float32).reshape(1, 1, 3, 3, 1)
    x.flat[place], x.flat[8] = np.nan, np.nan
    y, which = np.zeros((1, 1, 1, 1, 1), np.float32), np.full((1, 1, 1, 1, 1), -1, np.int32)
    run(pool.max_forward, [1, x, y, which, (1, 3, 3), (1, 3, 3), (0, 0, 0)])
    assert np.isnan(y).all() and which.item() == place


# Adjoints: the three convolutions are one trilinear form, seen from three sides.

RUNNERS = [
    pytest.param(definition, np.float64, id="numpy"),
    pytest.param(compiled, np.float32, id="numba", marks=needs_numba),
]


@st.composite
def windows(draw, pooling=False):
    dims = draw(st.integers(1, 3))
    sides = [(1, 1, 1, 0, 1)] * (3 - dims)
    for _ in range(dims):
        k, s, size = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 9 if dims < 3 else 6))
        p, d = draw(st.integers(0, k // 2 if pooling else 3)), 1 if pooling else draw(st.integers(1, 3))
        assume(size + 2 * p >= d * (k - 1) + 1)
        sides.append((size, k, s, p, d))
    size, kernel, stride, padding, dilation = zip(*sides, strict=True)
    n, C, K = draw(st.integers(1, 3)), draw(st.sampled_from([1, 3, 17])), draw(st.sampled_from([1, 5, 16, 18]))
    groups = 1 if pooling else draw(st.sampled_from([1, 2, C]))
    if groups > 1:
        C, K = (C, C * draw(st.integers(1, 2))) if groups == C else (2 * C, 2 * K)
    ceil = pooling and draw(st.booleans())
    return Geometry(n, n, size, C, K, kernel, stride, padding, dilation, groups, ceil), draw(st.integers(0, 2**32 - 1))


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
    x = rng.standard_normal((g.n, *g.size, g.C)).astype(dtype)
    w = rng.standard_normal((*g.kernel, g.C // g.groups, g.K)).astype(dtype)
    dy = rng.standard_normal((g.n, *g.output, g.K)).astype(dtype)
    padded = np.pad(x, ((0, 0), *((p, p) for p in g.padding), (0, 0)))
    y, dx, dw = np.full_like(dy, np.nan), np.full_like(x, np.nan), np.full_like(w, np.nan)
    kernels = depthwise if 1 < g.groups == g.C == g.K else conv
    how = g.stride, g.dilation, g.groups
    run(kernels.forward, [g.n, padded, w, np.zeros(0, dtype), y, *how])
    size = kernels.backward_data_work(dx.shape, dy.shape, w.shape, g.stride, g.padding, g.dilation)
    work = np.full(size, np.nan, dtype)
    run(kernels.backward_data, [g.n, dy, w, dx, g.stride, g.padding, g.dilation, g.groups, work])
    run(kernels.backward_weights, [g.n, padded, dy, dw, *how])
    scale = np.abs(y).ravel() @ np.abs(dy).ravel() + np.abs(dw).sum() + np.abs(dx).sum()
    terms = prod(g.kernel) * max(g.C, g.K) + g.n * prod(g.output)
    agree(inner(y, dy), inner(x, dx), scale, terms, dtype)
    agree(inner(y, dy), inner(w, dw), scale, terms, dtype)


@pytest.mark.parametrize("run, dtype", RUNNERS)
@settings(max_examples=150, deadline=None, derandomize=True)
@given(drawn=windows(pooling=True))
def test_gradients_of_poolings_are_their_adjoints(run, dtype, drawn):
    """Pooling is linear once it is settled who wins: ⟨pool(x), dy⟩ = ⟨x, gradient⟩."""
    g, seed = drawn
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((g.n, *g.size, g.C)).astype(dtype)
    dy = rng.standard_normal((g.n, *g.output, g.C)).astype(dtype)
    y, dx, which = np.full_like(dy, np.nan), np.full_like(x, np.nan), np.full(dy.shape, -1, np.int32)
    window, terms = (g.kernel, g.stride, g.padding), prod(g.kernel)

    def check():
        scale = np.abs(y).ravel() @ np.abs(dy).ravel() + np.abs(x).ravel() @ np.abs(dx).ravel()
        agree(inner(y, dy), inner(x, dx), scale, terms, dtype)

    for count_padding in (True, False):
        run(pool.average_forward, [g.n, x, y, *window, count_padding])
        run(pool.average_backward, [g.n, dy, dx, *window, count_padding])
        check()
    run(pool.max_forward, [g.n, x, y, which, *window])
    run(pool.max_backward, [g.n, dy, which, dx, *window])
    check()
