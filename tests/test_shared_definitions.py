"""What definition and nest share, against what it means: comparing the two with each other would notice nothing."""

import math

import numpy as np
import pytest

from corenet.kernels import batchnorm, gradient, layerwise, pool, resize


@pytest.mark.parametrize("sizes, positions", [((4, 4, 1), 6), ((3, 2), 1), ((5,), 2), ((1,), 1)])
def test_running_statistics_move_towards_those_of_all_values(sizes, positions):
    rng, places = np.random.default_rng(0), len(sizes) + 2
    x = rng.standard_normal((sum(sizes), positions, 3)) * 2 + 3
    parts = np.split(x, np.cumsum(sizes)[:-1])
    means, centreds = np.full((places, 3), 1e6), np.full((places, 3), 1e6)  # what is left of a longer batch
    for i, part in enumerate(parts):
        means[i], centreds[i] = part.mean((0, 1)), part.var((0, 1)) * len(part) * positions
    old_mean, old_var, mean, var = rng.random(3), rng.random(3), np.zeros(3), np.zeros(3)
    counts = np.array([*sizes, 4, 4])
    batchnorm.merge(len(sizes), means, centreds, counts, old_mean, old_var, mean, var, positions, 0.3)
    unbiased = x.var((0, 1), ddof=1) if x.size > 3 else np.zeros(3)
    np.testing.assert_allclose(mean, 0.7 * old_mean + 0.3 * x.mean((0, 1)), rtol=1e-13)
    np.testing.assert_allclose(var, 0.7 * old_var + 0.3 * unbiased, rtol=1e-13)


def test_rstd_of_running_variances():
    var, rstd = np.array([0.0, 0.5, 9.0]), np.zeros(3)
    batchnorm.running_rstd(1, var, rstd, 0.25)
    np.testing.assert_allclose(rstd, [2, 1 / math.sqrt(0.75), 1 / math.sqrt(9.25)], rtol=1e-15)


@pytest.mark.parametrize("limit, expected", [(1.5, 0.5), (3.0, 1.0), (1e6, 1.0), (1e-3, 1e-3 / 3)])
def test_clip_factor(limit, expected):
    sums, factor = np.array([[7.0, 4.0], [7.0, 1.0], [7.0, 4.0], [7.0, 99.0]]), np.zeros(1)
    gradient.clip_factor(3, sums, factor, limit)
    assert factor[0] == pytest.approx(expected, rel=1e-6)
    gradient.clip_factor(3, sums * 1e-12, factor, limit * 1e-6)  # where PyTorch's epsilon is no longer small
    assert factor[0] == pytest.approx(min(1, limit / (3 + 1)), rel=1e-9)


def test_lamb_direction():
    got = layerwise.lamb_direction(
        weight=3.0, mean=0.5, square=0.08, decay=0.1, eps=0.3, correction1=0.25, correction2=0.5
    )
    assert got == pytest.approx(2 / (0.4 + 0.3) + 0.3)


@pytest.mark.parametrize("size, window, stride, padding", [(5, 3, 2, 1), (4, 2, 3, 1), (4, 3, 2, 0), (1, 1, 1, 0)])
def test_divisors_count_positions(size, window, stride, padding):
    for place in range(-(-(size + padding) // stride)):  # all that begin before the image ends; the last may be cut
        under = range(place * stride - padding, place * stride - padding + window)
        for count_padding, around in ((True, padding), (False, 0)):
            counted = sum(-around <= position < size + around for position in under)
            assert pool.divisor(place, size, window, stride, padding, count_padding) == counted


@pytest.mark.parametrize("size, scale", [(1, 1), (1, 3), (2, 1), (2, 4), (5, 2), (3, 3)])
def test_matrices_that_enlarge(size, scale):
    outputs, points = np.arange(scale * size), np.arange(size)

    def interpolation(places):
        return np.stack([np.interp(places, points, row) for row in np.eye(size)], axis=1)

    ends = np.linspace(0, size - 1, scale * size)
    np.testing.assert_allclose(resize.linear(size, scale, True), interpolation(ends), atol=1e-15)
    np.testing.assert_allclose(
        resize.linear(size, scale, False), interpolation((outputs + 0.5) / scale - 0.5), atol=1e-15
    )
    assert (resize.nearest(size, scale) == (outputs[:, None] // scale == points)).all()


@pytest.mark.parametrize("size, outputs", [(7, 3), (5, 5), (3, 5), (9, 1), (1, 4)])
def test_matrix_of_averages(size, outputs):
    matrix = resize.average(size, outputs)
    for p, row in enumerate(matrix):
        under = np.arange(math.floor(p * size / outputs), math.ceil((p + 1) * size / outputs))
        assert (np.flatnonzero(row) == under).all() and (row[under] == 1 / len(under)).all()


@pytest.mark.parametrize("before, after", [(0, 0), (2, 1), (0, 3), (1, 0)])
def test_matrix_of_borders_and_its_bands(before, after):
    matrix = resize.border(4, before, after)
    assert (matrix == np.pad(np.eye(4), ((before, after), (0, 0)))).all()
    bands = resize.bands(matrix)
    assert bands.tolist() == [[0, 0]] * before + [[i, i + 1] for i in range(4)] + [[0, 0]] * after
    assert resize.bands(np.array([[0.0, 2, 0, 3, 0]])).tolist() == [[1, 4]]
