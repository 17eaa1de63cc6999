"""The loss: finite wherever logits are, right where the answer is known, and divided by the samples of the batch."""

import numpy as np
import pytest
from nets import Chunk, gradients, some_batch, within

from corenet.engine import Call, make_plan
from corenet.kernels import clock, cross_entropy
from corenet.kernels.backend import numba_problem, select
from corenet.nn import Conv2d, CrossEntropy, ReLU

needs_numba = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
KERNELS = [pytest.param("numba", "float32", marks=needs_numba), ("numpy", "float32"), ("numpy", "float64")]


def loss_of(logits, labels, kernels="numpy", dtype="float64", count=None):
    """Losses, gradient and metrics of a chunk."""
    x = np.asarray(logits, dtype)
    n = len(x)
    dx, losses, metrics = np.full_like(x, np.nan), np.full(n, np.nan, dtype), np.full(2, np.nan)
    time = np.zeros(clock.SIZE, np.int64)
    time[clock.COUNT] = n if count is None else count
    call = Call(cross_entropy.forward_backward, x, np.asarray(labels), dx, losses, metrics, time)
    call.link(select(kernels))
    call(n)
    return losses, dx, metrics


EXTREME = [
    ([1e4, -1e4, 0], 0, 0.0),
    ([1e4, -1e4, 0], 1, 2e4),
    ([-1e4, -1e4, -1e4], 2, np.log(3)),
    ([1e4, 1e4, 1e4], 2, np.log(3)),
    ([-1047, -981, 1891], 0, 2938.0),  # of NNlib's issue 68
    ([-1047, -981, 1891], 2, 0.0),
    ([0, 0, 80], 0, 80.0),
    ([-200, 0, -200], 1, 0.0),
]


@pytest.mark.parametrize("kernels, dtype", KERNELS)
@pytest.mark.parametrize("logits, label, expected", EXTREME)
def test_loss_and_gradient_are_finite_and_right_at_extreme_logits(logits, label, expected, kernels, dtype):
    losses, dx, metrics = loss_of([logits], [label], kernels, dtype)
    assert losses[0] == pytest.approx(expected, rel=1e-6, abs=1e-30)
    assert metrics[0] == losses[0]
    z = np.array(logits, float)
    softmax = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    np.testing.assert_allclose(dx[0], softmax - (np.arange(3) == label), rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("kernels, dtype", KERNELS)
def test_gradient_of_each_sample_adds_up_to_zero_and_the_best_is_the_first_of_equals(kernels, dtype):
    x = np.array([[2, 2, 1], [0, 3, 3], [1, 1, 1], [5, -1, 0]])
    _, dx, metrics = loss_of(x, [0, 2, 0, 1], kernels, dtype)
    np.testing.assert_allclose(dx.sum(axis=1), 0, atol=1e-7)
    assert metrics[1] == 2  # rows 0 and 2


@pytest.mark.parametrize("kernels, dtype", KERNELS)
def test_a_logit_that_is_not_a_number_is_noticed(kernels, dtype):
    for place in range(3):
        for bad in (np.nan, np.inf):
            logits = [1.0, 2.0, 3.0]
            logits[place] = bad
            with np.errstate(invalid="ignore"):
                _, _, metrics = loss_of([logits, [0, 0, 0]], [1, 1], kernels, dtype)
            assert not np.isfinite(metrics[0]), (place, bad)


@pytest.mark.parametrize("kernels, dtype", KERNELS)
def test_gradient_divides_by_the_batch_and_losses_do_not(kernels, dtype):
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((5, 4)), rng.integers(0, 4, 5)
    losses, dx, metrics = loss_of(x, labels, kernels, dtype, count=5)
    many_losses, many, many_metrics = loss_of(x, labels, kernels, dtype, count=40)
    np.testing.assert_allclose(many, dx / 8, rtol=1e-6)
    assert (losses == many_losses).all() and (metrics == many_metrics).all()


# Shares: what each worker computes adds up to what one would.

NET = within(Conv2d(3, 4, 2), ReLU())


@pytest.mark.parametrize("kernels, dtype", KERNELS)
@pytest.mark.parametrize("shares", [(3, 1), (7, 6), (5, 0), (1, 1, 4)])
def test_unequal_shares_give_the_gradient_of_one_batch(shares, kernels, dtype):
    images, labels = some_batch(sum(shares))
    images = images.astype(dtype)
    settings = {"dtype": dtype, "backend": select(kernels)}
    loss, whole = gradients(NET, images, labels, [sum(shares)], **settings)
    loss_of_parts, parts = gradients(NET, images, labels, shares, **settings)
    eps = float(np.finfo(dtype).eps)
    assert loss_of_parts == pytest.approx(loss, rel=20 * eps)
    for name, value in whole.items():
        np.testing.assert_allclose(parts[name], value, atol=20 * eps * np.abs(value).max(), rtol=0, err_msg=name)


def test_the_mean_of_the_shares_means_would_be_seen():
    """The mistake itself (each share divides by its own size, then by the number of workers) is far from equal."""
    images, labels = some_batch(4)
    _, right = gradients(NET, images, labels, [3, 1])
    parts = [gradients(NET, images[part], labels[part], [n])[1] for part, n in ((slice(3), 3), (slice(3, 4), 1))]
    for name, value in right.items():
        wrong = (parts[0][name] + parts[1][name]) / 2
        assert np.abs(wrong - value).max() > 1e-2 * np.abs(value).max(), name


def test_scores_and_predictions_are_those_of_training():
    """What evaluate says of logits is what training says of them."""
    rng = np.random.default_rng(0)
    logits, labels = (50 * rng.standard_normal((40, 7))).astype(np.float32), rng.integers(0, 7, 40)
    logits[0] = [-1047, -981, 1891, 0, 0, 0, 0]
    loss = CrossEntropy()
    _, _, metrics = loss_of(logits, labels)
    scores = loss.scores(logits, labels)
    assert scores == {"loss": pytest.approx(metrics[0] / 40, rel=1e-12), "accuracy": metrics[1] / 40}
    probabilities = loss.predictions(logits)
    assert np.isfinite(probabilities).all() and (probabilities.argmax(axis=1) == logits.argmax(axis=1)).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    assert probabilities[0].tolist() == [0, 0, 1, 0, 0, 0, 0]


def test_the_loss_of_a_plan_is_that_of_its_output():
    net, (images, labels) = NET, some_batch(6)
    training = Chunk(make_plan(net, images.shape[1:], 6, loss=CrossEntropy(), dtype="float64"))
    prediction = Chunk(make_plan(net, images.shape[1:], 6, dtype="float64"), state=training.state)
    total = training.run(images, labels)
    prediction.run(images, labels)
    scores = CrossEntropy().scores(prediction.output, labels)
    assert total / 6 == pytest.approx(scores["loss"], rel=1e-12)
    assert training.program.metrics[1] / 6 == scores["accuracy"]
