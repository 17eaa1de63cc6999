"""Losses at the end of a net: what they take and refuse, their gradients, and that shares of a batch leave no trace."""

import re

import numpy as np
import pytest
from nets import Chunk, gradients, some_batch, within
from test_gradients import check_gradients

import corenet
from corenet.engine import make_plan
from corenet.errors import ConfigError, DataError, ShapeError
from corenet.kernels.backend import numba_problem, select
from corenet.nn import L1, MSE, BinaryCrossEntropy, Conv2d, CrossEntropy, Flatten, Huber, Linear, ReLU, Sequential
from corenet.nn.loss import LOSSES, build_loss, describe_loss, get_loss

needs_numba = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
KERNELS = [pytest.param("numba", "float32", marks=needs_numba), ("numpy", "float32"), ("numpy", "float64")]

NET = within(Conv2d(3, 4, 2), ReLU())  # (5, 4, 2) → 3 logits
PIXELS = Sequential(Conv2d(2, 3, 3, padding=1), ReLU(), Conv2d(3, 4, 1))  # (5, 4, 2) → (5, 4, 4)


def labels_of(shape, masked=False, seed=3):
    """Labels of 0 … 2; with `masked` about half of them, and all of the first sample, do not count."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, shape)
    if masked:
        labels[rng.random(shape) < 0.5] = -100
        labels[0] = -100
        labels[1] = 1
    return labels


def values_of(shape, seed=3):
    return np.random.default_rng(seed).random(shape)


# By name: loss, net, and targets for n samples.
CASES = {
    "cross-entropy": (CrossEntropy(), NET, lambda n: labels_of((n,))),
    "cross-entropy, masked": (CrossEntropy(), NET, lambda n: labels_of((n,), True)),
    "cross-entropy, all arguments": (CrossEntropy([0.5, 2, 1], 0, 0.2), NET, lambda n: labels_of((n,))),
    "per pixel": (CrossEntropy(), PIXELS, lambda n: labels_of((n, 5, 4), True)),
    "per pixel, all arguments": (CrossEntropy([1, 0, 3, 1], 2, 0.1), PIXELS, lambda n: labels_of((n, 5, 4))),
    "bce": (BinaryCrossEntropy(), NET, lambda n: values_of((n, 3))),
    "bce per pixel, weights": (BinaryCrossEntropy([1, 2, 3, 4]), PIXELS, lambda n: values_of((n, 5, 4, 4)).round()),
    "mse": (MSE(), NET, lambda n: values_of((n, 3))),
    "l1": (L1(), NET, lambda n: values_of((n, 3))),
    "huber": (Huber(0.3), PIXELS, lambda n: values_of((n, 5, 4, 4))),
}


def test_every_loss_has_cases():
    assert {type(loss) for loss, _, _ in CASES.values()} == set(LOSSES.values())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shares", [[4], [3, 1]])
def test_gradient_is_that_of_the_loss(case, shares):
    loss, net, targets = CASES[case]
    check_gradients(net, shares, (some_batch(4)[0], targets(4)), loss=loss)


@pytest.mark.parametrize("kernels, dtype", KERNELS)
@pytest.mark.parametrize("shares", [(3, 1), (7, 6), (5, 0), (1, 1, 4)])
@pytest.mark.parametrize("case", CASES)
def test_unequal_shares_give_the_gradient_of_one_batch(case, shares, kernels, dtype):
    loss, net, targets = CASES[case]
    n = sum(shares)
    images, y = some_batch(n)[0].astype(dtype), targets(n)
    settings = {"dtype": dtype, "backend": select(kernels), "loss": loss}
    mean, whole = gradients(net, images, y, [n], **settings)
    mean_of_parts, parts = gradients(net, images, y, shares, **settings)
    eps = float(np.finfo(dtype).eps)
    assert mean_of_parts == pytest.approx(mean, rel=20 * eps)
    for name, value in whole.items():
        np.testing.assert_allclose(parts[name], value, atol=40 * eps * np.abs(value).max(), rtol=0, err_msg=name)


@pytest.mark.parametrize("case", ["cross-entropy", "cross-entropy, masked", "mse"])
def test_the_mean_of_the_shares_means_would_be_seen(case):
    """The mistake itself (each share divides by its own count, then by the number of workers) is far from equal."""
    loss, net, targets = CASES[case]
    images, y, masked = some_batch(4)[0], targets(4), case == "cross-entropy, masked"
    y = np.array([-100, 1, 2, 0]) if masked else y
    _, right = gradients(net, images, y, [3, 1], loss=loss)
    cuts = (slice(2), slice(2, 4)) if masked else (slice(3), slice(3, 4))
    parts = [gradients(net, images[cut], y[cut], [len(y[cut])], loss=loss)[1] for cut in cuts]
    for name, value in right.items():
        wrong = (parts[0][name] + parts[1][name]) / 2
        assert np.abs(wrong - value).max() > 1e-2 * np.abs(value).max(), name


@pytest.mark.parametrize("case", CASES)
def test_scores_are_those_of_training(case):
    """What evaluate says of a net's outputs is what training says of them."""
    loss, net, targets = CASES[case]
    images, y = some_batch(300)[0], targets(300)
    training = Chunk(make_plan(net, (5, 4, 2), 300, loss=loss, dtype="float64"))
    prediction = Chunk(make_plan(net, (5, 4, 2), 300, dtype="float64"), state=training.state)
    checked = loss.targets(y if y.dtype == np.int64 else y.astype(np.float32), prediction.output.shape[1:], "some")
    training.run(images, checked)
    prediction.run(images, np.zeros(300))
    scores, means = loss.scores(prediction.output, checked), loss.means(training.program.metrics)
    assert scores.keys() == means.keys() == ({"loss", "accuracy"} if loss.accuracy else {"loss"})
    assert scores == pytest.approx(means, rel=1e-12)
    assert training.program.metrics[2] == pytest.approx(loss.weights(checked).sum(), rel=1e-12)
    probabilities = loss.predictions(prediction.output)
    assert probabilities.shape == prediction.output.shape
    if case.startswith(("cross", "per")):
        np.testing.assert_allclose(probabilities.sum(axis=-1), 1, rtol=1e-12)
    if loss.accuracy:
        assert (probabilities.argmax(axis=-1) == prediction.output.argmax(axis=-1)).all()


def test_predictions_far_from_zero_are_finite():
    logits = np.array([[-1047, -981, 1891], [1e4, -1e4, 0]], np.float32)
    assert CrossEntropy().predictions(logits).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert BinaryCrossEntropy().predictions(logits).tolist() == [[0, 0, 1], [1, 0, 0.5]]


def test_scores_of_nothing_are_not_a_number():
    scores = CrossEntropy().scores(np.zeros((2, 3)), np.full((2, 1), -100))
    assert np.isnan(scores["loss"]) and np.isnan(scores["accuracy"])


# In plain data.


@pytest.mark.parametrize("case", CASES)
def test_described_and_built_again(case):
    loss = CASES[case][0]
    again = build_loss(describe_loss(loss))
    assert type(again) is type(loss) and again.arguments() == loss.arguments() and repr(again) == repr(loss)


def test_by_name():
    for name, kind in LOSSES.items():
        assert type(get_loss(name)) is kind
    own = Huber(2)
    assert get_loss(own) is own


class Own(MSE):
    pass


BAD = {
    "unknown": (lambda: get_loss("msee"), "loss: expected a loss of corenet.nn, or one of .*'mse'.*Did you mean 'mse'"),
    "a class": (lambda: get_loss(MSE), r"loss: expected a loss of corenet.nn.*MSE'>. Call it: MSE\(\)"),
    "no name": (lambda: get_loss([]), r"loss: expected a loss of corenet.nn.*got \[\]"),
    "a class of the user's": (lambda: get_loss(Own()), "loss: expected a loss of corenet.nn"),
    "negative weight": (lambda: CrossEntropy([1, -1]), r"CrossEntropy\(weight=…\): expected .* at least 0"),
    "no weights": (lambda: CrossEntropy([]), r"CrossEntropy\(weight=…\)"),
    "weight of text": (lambda: CrossEntropy("ab"), r"CrossEntropy\(weight=…\)"),
    "infinite weight": (lambda: BinaryCrossEntropy(np.inf), r"BinaryCrossEntropy\(pos_weight=…\)"),
    "True for a weight": (lambda: BinaryCrossEntropy(True), r"BinaryCrossEntropy\(pos_weight=…\).*got True"),
    "smoothing": (lambda: CrossEntropy(label_smoothing=1.5), "label_smoothing.*from 0 to 1, got 1.5"),
    "label": (lambda: CrossEntropy(ignore_index=0.5), "ignore_index.*an integer"),
    "delta": (lambda: Huber(0), "delta.*above 0, got 0"),
    "description": (lambda: build_loss({"type": "hinge"}), "loss description: expected .*cross_entropy.*hinge"),
    "argument": (lambda: build_loss({"type": "mse", "delta": 1}), "loss description: got .*takes no arguments"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_losses_are_refused(case):
    call, message = BAD[case]
    with pytest.raises(ConfigError, match=message):
        call()


def net_to(*shape):
    """From (5, 4, 2) to an output of that shape."""
    layers = [Flatten(), Linear(40, int(np.prod(shape)))]
    return Sequential(*layers, corenet.nn.Reshape(*shape)) if len(shape) > 1 else Sequential(*layers)


NOT_FITTING = {
    "one logit": (CrossEntropy(), net_to(1), r"output of the net: expected .*at least 2 classes, got .*\(1,\).*bce"),
    "weights": (CrossEntropy([1, 2]), net_to(3), r"output of the net: expected 2 classes.*\(3,\)"),
    "pos_weight": (BinaryCrossEntropy([1, 2]), net_to(3), r"output of the net: expected 2 channels.*\(3,\)"),
    "nothing before it": (MSE(), Sequential(), "output of the net: expected a layer between"),
}


@pytest.mark.parametrize("case", NOT_FITTING)
def test_losses_that_do_not_fit_the_output(case):
    loss, net, message = NOT_FITTING[case]
    with pytest.raises(ShapeError, match=message):
        make_plan(net, (5, 4, 2), 1, loss=loss)


def ints(*shape):
    return np.zeros(shape, np.int64)


def floats(*shape):
    return np.zeros(shape, np.float32)


WRONG_TARGETS = {
    "floats for classes": (
        CrossEntropy(),
        (3,),
        floats(4),
        "labels of 'd': expected integers.*float32.*astype",
    ),
    "one-hot": (CrossEntropy(), (3,), ints(4, 3), r"expected shape \(n,\), for .*\(3,\), got shape \(4, 3\).*argmax"),
    "images of logits": (CrossEntropy(), (5, 4, 3), ints(4), r"expected shape \(n, 5, 4\).*got shape \(4,\).*Flatten"),
    "one per pixel": (CrossEntropy(), (3,), ints(4, 5, 4), r"expected shape \(n,\).*\(4, 5, 4\).*for one per pixel"),
    "smaller output": (CrossEntropy(), (5, 4, 3), ints(4, 7, 6), r"expected shape \(n, 5, 4\).*\(4, 7, 6\)\. Pad"),
    "too large": (CrossEntropy(), (3,), ints(4) + 3, r"label out of range in 'd'.*0 to 2.*got 3 at index 0"),
    "negative": (CrossEntropy(), (3,), ints(4) - 1, r"0 to 2, for 3 classes, or -100 \(ignored\), got -1 at index 0"),
    "not the ignored one": (CrossEntropy(None, 255), (3,), ints(4) - 100, r"or 255 \(ignored\), got -100"),
    "a pixel": (CrossEntropy(), (2, 1, 3), ints(4, 2, 1) + 9, r"got 9 at index \(0, 0, 0\)"),
    "values": (MSE(), (3,), floats(4, 2), r"targets of 'd': expected shape \(n, 3\), for .*got shape \(4, 2\)"),
    "one value for three": (MSE(), (3,), floats(4), r"expected shape \(n, 3\).*got shape \(4,\)"),
    "not from 0 to 1": (BinaryCrossEntropy(), (1,), ints(4) + 2, "expected values from 0 to 1, got values from 2 to 2"),
}


@pytest.mark.parametrize("case", WRONG_TARGETS)
def test_targets_that_do_not_fit_the_loss(case):
    loss, output, targets, message = WRONG_TARGETS[case]
    with pytest.raises(DataError, match=message):
        loss.targets(targets, output, "d")


@pytest.mark.parametrize("weight", [np.float32(2), np.int64(2), 2, 2.0, [2], np.array([2])])
def test_pos_weight_is_a_number_of_any_kind(weight):
    assert BinaryCrossEntropy(weight).pos_weight == (2.0,)


@pytest.mark.parametrize("loss, output", [(CrossEntropy(), (3,)), (CrossEntropy(), (5, 4, 3)), (MSE(), (5, 4, 1)),
                                          (BinaryCrossEntropy(), (5, 4, 1)), (L1(), (1,))])  # fmt: skip
def test_targets_may_have_a_last_axis_of_one_or_not(loss, output):
    plain = np.random.default_rng(0).integers(0, 2, (4, *output[:-1]))
    with_axis = loss.targets(plain[..., None], output, "d")
    assert (loss.targets(plain, output, "d") == with_axis).all() and with_axis.shape == (4, plain[0].size)


def test_one_output_takes_a_vector_of_values():
    assert MSE().targets(np.arange(3), (1,), "d").tolist() == [[0], [1], [2]]
    assert BinaryCrossEntropy().targets(np.array([True, False]).astype(int), (1,), "d").dtype == np.float32


# Whole runs.


def blobs(n=40, seed=0):
    """Pictures (6, 6, 1) in which bright pixels are the ones to find, some of them unlabelled."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 6, 6, 1)).astype(np.float32)
    labels = (x[..., 0] > 0.5).astype(np.int64)
    labels[rng.random(labels.shape) < 0.3] = -100
    return x, labels


def per_pixel():
    return Sequential(Conv2d(1, 4, 3, padding=1), ReLU(), Conv2d(4, 2, 1))


def test_labels_for_each_pixel_are_learned_with_the_same_bits_by_any_workers(trainer, tmp_path):
    x, labels = blobs()
    hashes = set()
    for workers in (1, 2, 3):
        one = trainer(per_pixel(), optimizer=corenet.optim.Adam(0.02), loss=CrossEntropy([1, 2]), workers=workers)
        history = one.fit((x, labels), epochs=15, batch_size=7, validation=(x, labels), callbacks=())
        hashes.add(one.params_sha256())
    assert len(hashes) == 1
    assert history["accuracy"][-1] > 0.9 and history["val_accuracy"][-1] > 0.9 and history["loss"][-1] < 0.4
    probabilities = one.predict(x)
    assert probabilities.shape == (40, 6, 6, 2)
    counts = labels != -100
    assert (probabilities.argmax(-1) == labels)[counts].mean() == one.evaluate((x, labels))["accuracy"]
    one.save(tmp_path / "m.safetensors")
    again = corenet.load(tmp_path / "m.safetensors", workers=1)
    assert repr(again.loss) == repr(one.loss)
    assert again.evaluate((x, labels)) == one.evaluate((x, labels))


@pytest.mark.parametrize("loss", ["mse", "l1", "huber"])
def test_values_are_learned(loss, trainer):
    x = np.random.default_rng(0).random((60, 4, 4, 1)).astype(np.float32)
    y = x.mean(axis=(1, 2))[:, 0] * 3 - 1  # a vector of floats for an output of one
    one = trainer(Sequential(Flatten(), Linear(16, 1)), optimizer=corenet.optim.Adam(0.05), loss=loss)
    history = one.fit((x, y), epochs=25, batch_size=20, validation=(x, y), callbacks=())
    assert history["val_loss"][-1] < 0.2 * history["val_loss"][0]
    assert "accuracy" not in history.epochs[-1] and "val_accuracy" not in history.epochs[-1]
    assert one.predict(x).shape == (60, 1) and one.evaluate((x, y)) == {"loss": history["val_loss"][-1]}


def test_yes_and_no_are_learned(trainer):
    x = np.random.default_rng(0).random((60, 4, 4, 1)).astype(np.float32)
    y = x[:, 0, 0, 0] > 0.5
    one = trainer(Sequential(Flatten(), Linear(16, 1)), optimizer=corenet.optim.Adam(0.1), loss="bce")
    history = one.fit((x, y), epochs=25, batch_size=20, callbacks=())
    assert history["accuracy"][-1] > 0.9
    assert ((one.predict(x)[:, 0] > 0.5) == y).mean() == one.evaluate((x, y))["accuracy"]


def test_other_targets_for_the_same_images_are_shared_anew(trainer):
    x = np.random.default_rng(0).random((20, 2, 2, 1)).astype(np.float32)
    one = trainer(Sequential(Flatten(), Linear(4, 1)), optimizer=corenet.optim.SGD(0.1), loss="mse")
    low = one.fit((x, np.zeros(20)), epochs=30, callbacks=())["loss"][-1]
    high = one.fit((x, np.full(20, 9.0)), epochs=1, callbacks=())["loss"][0]
    assert low < 0.1 < 9 < high


def test_a_label_of_255_is_ignored_where_the_loss_says_so(trainer):
    x, masks = blobs()
    data = corenet.datasets.from_arrays(x, np.where(masks < 0, 255, masks), classes=["dark", "bright"])
    results = []
    for given, ignored in (((x, masks), -100), (data, 255)):
        one = trainer(per_pixel(), loss=CrossEntropy(ignore_index=ignored), workers=2, kernels="numpy")
        one.fit(given, batch_size=16, callbacks=())
        results.append((one.params_sha256(), one.evaluate(given)))
    assert results[0] == results[1] and one.classes == ("dark", "bright")
    with pytest.raises(DataError, match=r"labels from 0 to 1, for 2 classes, or -100 .ignored., got 255 at index"):
        corenet.Trainer(per_pixel()).fit(data)


def test_large_integers_are_values_to_mse_and_no_classes_to_cross_entropy(trainer):
    x, prices = np.ones((4, 2, 2, 1), np.uint8), np.array([70_000, 70_010, 70_020, 70_030])
    one = trainer(Sequential(Flatten(), Linear(4, 1)), loss="mse", kernels="numpy")
    assert one.fit((x, prices), callbacks=())["loss"][0] == pytest.approx(70_015**2, rel=1e-3)
    assert one.classes == ()
    with pytest.raises(DataError, match=r"labels from 0 to 2, for 3 classes.*got 70000 at index 0"):
        corenet.Trainer(Sequential(Flatten(), Linear(4, 3))).fit((x, prices))


def test_augmentation_of_images_with_targets_per_pixel_is_refused():
    data = corenet.datasets.from_arrays(*blobs())
    with pytest.raises(ConfigError, match=re.escape("targets of shape (40, 6, 6), which would stay where they are")):
        data.with_augmentation(flip=True)


def test_progress_lines_without_accuracy(trainer, capsys):
    one = trainer(Sequential(Flatten(), Linear(4, 1)), loss="mse")
    one.fit((np.ones((8, 2, 2, 1)), np.zeros(8)), validation=(np.ones((8, 2, 2, 1)), np.zeros(8)))
    line = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"epoch 1/1  loss \S+  validation loss \S+  \S+ images/s", line)
