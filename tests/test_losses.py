"""Losses and their gradients: PyTorch's, by hand, far from zero, masked, and in unequal shares of a batch."""

import math

import numpy as np
import pytest

from corenet.kernels import losses
from corenet.kernels.backend import numba_problem, select
from corenet.kernels.losses import CORRECT, COUNTED, LOSS, WEIGHT
from corenet.nn import CrossEntropy

needs_numba = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
KERNELS = [pytest.param("numba", np.float32, marks=needs_numba), ("numpy", np.float64)]


class Result:
    """What a loss writes: dx, the sums of each sample, metrics; loss is the mean."""

    def __init__(self, operation, x, target, *rest, count, kernels="numpy", n=None):
        plain = [np.asarray(a, x.dtype) if isinstance(a, np.ndarray) else a for a in rest]
        target = np.asarray(target) if np.asarray(target).dtype.kind == "i" else np.asarray(target, x.dtype)
        self.dx, self.sums, self.metrics = np.full_like(x, np.nan), np.full((len(x), 4), np.nan), np.full(4, np.nan)
        scale = np.array([1 / count if count else 0.0])
        args = (len(x) if n is None else n, x, target, self.dx, self.sums, self.metrics, scale, *plain)
        select(kernels).function(operation, args)(*args)
        self.loss, self.hits = self.metrics[LOSS] * scale[0], self.metrics[CORRECT]


def close(got, exact, dtype, terms=64):
    """Of the size that rounding gives, measured by the largest element."""
    exact = np.asarray(exact, np.float64)
    bound = 4 * math.sqrt(terms) * np.finfo(dtype).eps * max(np.abs(exact).max(), 1e-3)
    np.testing.assert_allclose(np.asarray(got, np.float64), exact, rtol=0, atol=bound)


def backward(torch, x, make):
    """Loss and gradient of PyTorch in double."""
    theirs = torch.from_numpy(x.astype(np.float64)).requires_grad_()
    loss = make(theirs)
    loss.backward()
    return float(loss.detach()), theirs.grad.numpy()


def counted(labels, class_weights, ignore=-100):
    """What all samples count together."""
    return CrossEntropy(class_weights.tolist(), ignore).weights(labels).sum()


# Against PyTorch.


@pytest.mark.parametrize("kernels, dtype", KERNELS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore", [None, -100, 1])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("shape", [(9, 1, 10), (3, 20, 4)])
def test_cross_entropy_is_pytorchs(shape, smoothing, ignore, weighted, kernels, dtype):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(shape) * 3).astype(dtype)
    labels = rng.integers(0, shape[2], shape[:2])
    if ignore == -100:
        labels[rng.random(labels.shape) < 0.4] = ignore
    number = -100 if ignore is None else ignore
    class_weights = (rng.random(shape[2]) + 0.1 if weighted else np.ones(shape[2])).astype(dtype)
    count = counted(labels, class_weights, number)
    got = Result(losses.cross_entropy, x, labels, class_weights, number, smoothing, count=count, kernels=kernels)
    settings = {"label_smoothing": smoothing, "ignore_index": number}
    settings["weight"] = torch.from_numpy(class_weights.astype(np.float64)) if weighted else None
    loss, dx = backward(
        torch,
        x,
        lambda logits: torch.nn.functional.cross_entropy(
            logits.permute(0, 2, 1),
            torch.from_numpy(labels),
            **settings,  # classes second, as PyTorch has them
        ),
    )
    close(got.loss, loss, dtype)
    close(got.dx, dx, dtype)
    assert got.hits == ((x.argmax(2) == labels) & (labels != number)).sum()
    assert got.metrics[COUNTED] == (labels != number).sum()
    assert got.metrics[WEIGHT] == pytest.approx(count)


@pytest.mark.parametrize("kernels, dtype", KERNELS)
@pytest.mark.parametrize("pos_weighted", [False, True])
def test_binary_cross_entropy_is_pytorchs(pos_weighted, kernels, dtype):
    """PyTorch divides by the number of elements, whatever the weights."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    x, target = (rng.standard_normal((6, 12)) * 5).astype(dtype), rng.random((6, 12)).astype(dtype)
    pos_weight = (rng.random(3) * 3 if pos_weighted else np.ones(1)).astype(dtype)
    got = Result(losses.binary_cross_entropy, x, target, pos_weight, count=x.size, kernels=kernels)
    double = [torch.from_numpy(a.astype(np.float64)) for a in (target, pos_weight)]
    loss, dx = backward(
        torch,
        x,
        lambda logits: torch.nn.functional.binary_cross_entropy_with_logits(
            logits.reshape(6, 4, 3),
            double[0].reshape(6, 4, 3),
            pos_weight=double[1] if pos_weighted else None,
        ),
    )
    close(got.loss, loss, dtype)
    close(got.dx, dx, dtype)
    assert got.metrics[1:].tolist() == [((x > 0) == (target > 0.5)).sum(), x.size, x.size]


REGRESSION = {
    "mse": (losses.mse, (), lambda f: f.mse_loss),
    "l1": (losses.l1, (), lambda f: f.l1_loss),
    "huber": (losses.huber, (1.0,), lambda f: f.huber_loss),
    "huber 0.3": (losses.huber, (0.3,), lambda f: lambda x, t: f.huber_loss(x, t, delta=0.3)),
}


@pytest.mark.parametrize("kernels, dtype", KERNELS)
@pytest.mark.parametrize("name", REGRESSION)
def test_regression_is_pytorchs(name, kernels, dtype):
    """Also where an element hits its target."""
    torch = pytest.importorskip("torch")
    operation, more, function = REGRESSION[name]
    rng = np.random.default_rng(2)
    x, target = rng.standard_normal((5, 14)).astype(dtype), rng.standard_normal((5, 14)).astype(dtype)
    x[0, :3], x[1, 0] = target[0, :3], target[1, 0] + 100
    got = Result(operation, x, target, *more, count=x.size, kernels=kernels)
    exact = torch.from_numpy(target.astype(np.float64))
    loss, dx = backward(torch, x, lambda inputs: function(torch.nn.functional)(inputs, exact))
    close(got.loss, loss, dtype)
    close(got.dx, dx, dtype)
    assert got.metrics[1:].tolist() == [0, x.size, x.size]


# By hand.


def cross(x, labels, class_weights=None, smoothing=0.0, count=1.0, **settings):
    """Cross-entropy of rows (rows, classes), one position each."""
    x = np.asarray(x, settings.pop("dtype", np.float64))[:, None]
    class_weights = np.ones(x.shape[2]) if class_weights is None else np.asarray(class_weights, float)
    rest = class_weights, -100, smoothing
    return Result(losses.cross_entropy, x, np.array(labels)[:, None], *rest, count=count, **settings)


@needs_numba
def test_of_equal_logits_the_first_is_the_answer_on_both_kernels():
    for kernels in ("numba", "numpy"):
        settings = {"dtype": np.float32, "kernels": kernels}
        assert cross([[0, 2, 2], [3, 3, 1], [1, 1, 1]], [1, 0, 0], **settings).hits == 3
        assert cross([[0, 2, 2], [3, 3, 1], [1, 1, 1]], [2, 1, 2], **settings).hits == 0


def test_cross_entropy_by_hand():
    logits = [[math.log(1), math.log(3)], [0.0, 0.0]]  # softmax 1/4, 3/4; 1/2, 1/2
    got = cross(logits, [0, 1], count=2)
    assert got.loss == pytest.approx((math.log(4) + math.log(2)) / 2)
    assert got.dx[:, 0] == pytest.approx(np.array([[-3 / 4, 3 / 4], [1 / 2, -1 / 2]]) / 2)
    assert got.hits == 0  # of equals, the first counts
    got = cross(logits, [1, -100], class_weights=[5, 2], count=2)
    assert got.loss == pytest.approx(math.log(4 / 3))
    assert got.dx[:, 0] == pytest.approx(np.array([[1 / 4, -1 / 4], [0, 0]]))
    assert got.sums[1].tolist() == [0, 0, 0, 0] and got.sums[0, 1:].tolist() == [1, 2, 1]
    got = cross(logits[:1], [1], class_weights=[5, 2], smoothing=0.5)
    q = np.array([5 * 0.25, 2 * 0.75])
    assert got.loss == pytest.approx(q[0] * math.log(4) + q[1] * math.log(4 / 3))
    assert got.dx[0, 0] == pytest.approx(np.array([1 / 4, 3 / 4]) * q.sum() - q)


def test_others_by_hand():
    x, t = np.array([[1.0, 4.0]]), np.array([[2.0, 1.0]])
    assert Result(losses.mse, x, t, count=2).metrics.tolist() == [1 + 9, 0, 2, 2]
    assert Result(losses.mse, x, t, count=2).dx.tolist() == [[-1, 3]]
    assert Result(losses.l1, x, t, count=2).metrics[0] == 1 + 3
    assert Result(losses.l1, x, t, count=2).dx.tolist() == [[-0.5, 0.5]]
    assert Result(losses.huber, x, t, 2.0, count=2).metrics[0] == 0.5 + 2 * (3 - 1)
    assert Result(losses.huber, x, t, 2.0, count=2).dx.tolist() == [[-0.5, 1]]
    x, t = np.array([[0.0, math.log(3), 0.0]]), np.array([[1.0, 0.0, 0.5]])
    got = Result(losses.binary_cross_entropy, x, t, np.array([2.0, 3.0, 4.0]), count=1)
    assert got.loss == pytest.approx(2 * math.log(2) + math.log(4) + 4 * 0.5 * math.log(2) + 0.5 * math.log(2))
    assert got.dx[0] == pytest.approx([-1.0, 0.75, -1.0 + 0.25])


@pytest.mark.parametrize("kernels, dtype", KERNELS)
def test_logit_of_zero_is_a_no_and_so_is_a_target_of_a_half(kernels, dtype):
    x, t = np.array([[0, 0, 0, 1, -1]], dtype), np.array([[0, 0.5, 1, 1, 0]], dtype)
    assert Result(losses.binary_cross_entropy, x, t, np.ones(1), count=1, kernels=kernels).hits == 4


@pytest.mark.parametrize("kernels", [pytest.param("numba", marks=needs_numba), "numpy"])
def test_batch_scale_by_hand(kernels):
    weights, order, scale = np.array([1.0, 10.0, 100.0, 0.0]), np.array([0, 3, 1, 2]), np.zeros(1)
    for first, expected in ((0, 1), (1, 1 / 10), (2, 1 / 110)):
        args = 2, weights, order, first, scale
        select(kernels).function(losses.batch_scale, args)(*args)
        assert scale[0] == expected
    args = 1, weights, order, 1, scale
    select(kernels).function(losses.batch_scale, args)(*args)
    assert scale[0] == 0  # nothing counts: nothing is learned


# Numbers that overflow where a formula is written down carelessly.

FAR = [[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4], [-1047.0, -981.0, 1891.0], [1e4, 1e4, 1e4]]


@pytest.mark.parametrize("kernels, dtype", KERNELS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_finite_far_from_zero(smoothing, kernels, dtype):
    for label in range(3):
        got = cross(FAR, [label] * 4, smoothing=smoothing, dtype=dtype, kernels=kernels)
        x = np.array(FAR)
        log_p = x - x.max(1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(1, keepdims=True))
        exact = -(1 - smoothing) * log_p[:, label] - smoothing * log_p.mean(1)
        np.testing.assert_allclose(got.sums[:, LOSS], exact, rtol=1e-6, atol=1e-12)
        assert np.isfinite(got.dx).all() and np.abs(got.dx).max() <= 1
        q = smoothing / 3 + (1 - smoothing) * (np.arange(3) == label)
        np.testing.assert_allclose(got.dx[:, 0], np.exp(log_p) - q, atol=1e-6)


@pytest.mark.parametrize("kernels, dtype", KERNELS)
def test_binary_cross_entropy_far_from_zero(kernels, dtype):
    """Finite, and of full precision where the logit is sure, too: its gradient there is small, not zero."""
    x = np.array([[1e4, -1e4, 1e4, -1e4, 1891.0, -1047.0, 20.0, -20.0]], dtype)
    t = np.array([[1, 0, 0, 1, 1, 1, 1, 0]], dtype)
    got = Result(losses.binary_cross_entropy, x, t, np.ones(1), count=1, kernels=kernels)
    tail = math.exp(-20)
    np.testing.assert_allclose(got.dx[0], [0, 0, 1, -1, 0, -1, -tail, tail], rtol=1e-5)
    assert got.loss == pytest.approx(1e4 + 1e4 + 1047 + 2 * math.log1p(tail), rel=1e-6)


# Masks and shares.


@pytest.mark.parametrize("kernels, dtype", KERNELS)
def test_masked_rows_may_be_anything(kernels, dtype):
    logits = np.array([[[1.0, 2.0]], [[np.nan, np.nan]], [[np.inf, 0.0]]], dtype)
    with np.errstate(invalid="ignore"):
        got = Result(losses.cross_entropy, logits, [[1], [7], [7]], np.ones(2), 7, 0.1, count=1, kernels=kernels)
    assert np.isfinite(got.dx).all() and (got.dx[1:] == 0).all() and (got.sums[1:] == 0).all()
    assert got.metrics[1:].tolist() == [1, 1, 1]


@pytest.mark.parametrize("kernels, dtype", KERNELS)
def test_nan_that_counts_is_noticed(kernels, dtype):
    x, target = np.array([[1.0, np.nan]], dtype), np.ones((1, 2), dtype)
    for operation, more in ((losses.mse, ()), (losses.l1, ()), (losses.huber, (0.4,)),
                            (losses.binary_cross_entropy, (np.ones(1),))):  # fmt: skip
        got = Result(operation, x, target, *more, count=1, kernels=kernels)
        assert np.isnan(got.metrics[0]) and np.isnan(got.dx[0, 1]) and not np.isnan(got.dx[0, 0])
    assert np.isnan(cross(x, [0], dtype=dtype, kernels=kernels).metrics[0])


@pytest.mark.parametrize("kernels, dtype", KERNELS)
def test_batch_of_masked_labels_teaches_nothing(kernels, dtype):
    labels = np.full((3, 1), -100)
    assert counted(labels, np.ones(2)) == 0
    got = cross(np.ones((3, 2)), [-100] * 3, count=0, dtype=dtype, kernels=kernels)
    assert (got.dx == 0).all() and got.metrics.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("kernels, dtype", KERNELS)
@pytest.mark.parametrize("shares", [(3, 1), (7, 6), (5, 0), (1, 1, 1, 9)])
def test_unequal_shares_make_the_gradient_of_the_batch(shares, kernels, dtype):
    """Masked labels make the effective counts of shares more unequal still; chunks may be larger than their samples."""
    rng, total = np.random.default_rng(4), sum(shares)
    x = rng.standard_normal((total, 3, 5)).astype(dtype)
    labels = rng.integers(0, 5, (total, 3))
    labels[rng.random(labels.shape) < 0.5] = -100
    labels[0] = -100
    class_weights = (rng.random(5) + 0.5).astype(dtype)
    settings = {"count": counted(labels, class_weights), "kernels": kernels}
    whole = Result(losses.cross_entropy, x, labels, class_weights, -100, 0.1, **settings)
    parts, first = [], 0
    for share in shares:
        chunk, own = np.full((9, 3, 5), np.nan, dtype), np.zeros((9, 3), np.int64)
        chunk[:share], own[:share] = x[first : first + share], labels[first : first + share]
        first += share
        parts.append((share, Result(losses.cross_entropy, chunk, own, class_weights, -100, 0.1, n=share, **settings)))
    assert np.concatenate([part.dx[:share] for share, part in parts]).tobytes() == whole.dx.tobytes()
    assert sum(part.loss for _, part in parts) == pytest.approx(whole.loss, rel=1e-12)
    assert sum(part.hits for _, part in parts) == whole.hits
