"""The gradient of whole plans, in double: against differences of the loss, for nets with every layer."""

import json

import numpy as np
import pytest
from nets import ALL, CASES, Chunk, batch_for, gradients

from corenet.engine import initial_state, make_plan
from corenet.nn import CrossEntropy, describe
from corenet.nn.description import LAYERS

H = 1e-6
PER_ARRAY = 25  # elements of each parameter that are moved


def test_every_layer_has_cases():
    assert set(CASES) == set(LAYERS), "give every layer of corenet.nn nets in tests/nets.py"
    for layer, cases in CASES.items():
        assert cases
        for label, net in cases.items():
            assert f'"type": "{layer}"' in json.dumps(describe(net)), f"{layer}, {label} does not contain the layer"


def perturbed_state(plan, seed=0):
    """Initial parameters with some noise: gamma and beta of batch norm are not 1 and 0 then."""
    state = initial_state(plan, seed)
    rng = np.random.default_rng(seed)
    for entry in plan.layout.parameters:
        plan.layout.get(state, entry)[...] += 0.1 * rng.standard_normal(entry.shape)
    return state


def check_gradients(net, shares, batch, step=5, loss=None):
    images, labels = batch
    plan = make_plan(net, images.shape[1:], max(shares), len(images), loss=loss or CrossEntropy(), dtype="float64")
    state = perturbed_state(plan)

    def mean_loss():
        return gradients(net, images, labels, shares, state=state, step=step, loss=loss)[0]

    middle, analytic = gradients(net, images, labels, shares, state=state, step=step, loss=loss)
    assert set(analytic) == {entry.name for entry in plan.layout.parameters}
    largest = max(np.abs(gradient).max() for gradient in analytic.values())
    assert largest > 1e-3
    rng, checked, kinks = np.random.default_rng(7), 0, 0
    for entry in plan.layout.parameters:
        values, gradient = plan.layout.get(state, entry).reshape(-1), analytic[entry.name].reshape(-1)
        for place in rng.permutation(entry.size)[:PER_ARRAY]:
            kept = values[place]
            values[place] = kept + H
            above = mean_loss()
            values[place] = kept - H
            below = mean_loss()
            values[place] = kept
            right, left = (above - middle) / H, (middle - below) / H
            if abs(right - left) > 1e-3 * largest:  # a ReLU or a maximum changes sides between the three points
                kinks += 1
                continue
            checked += 1
            assert (right + left) / 2 == pytest.approx(gradient[place], rel=1e-6, abs=2e-8 * largest + 1e-9), (
                f"{entry.name}[{place}]"
            )
    assert kinks <= checked / 50, f"{kinks} kinks beside {checked} elements: choose another seed"


@pytest.mark.parametrize("label", ALL)
def test_gradient_is_that_of_the_loss(label):
    check_gradients(ALL[label], [3], batch_for(label, 3))


@pytest.mark.parametrize(
    "label",
    ["BatchNorm2d, twice", "Dropout, of a vector, twice", "Conv3d, first layer"]
    + [label for label in ALL if label.startswith("BatchNorm") and "sync" in label],
)
def test_gradient_of_a_batch_in_unequal_chunks_is_that_of_its_loss(label):
    check_gradients(ALL[label], [4, 4, 1], batch_for(label, 9))


@pytest.mark.parametrize("label", ALL)
def test_prediction_does_not_depend_on_the_other_samples(label):
    """In prediction batch norm uses running statistics and nothing is dropped: each sample is by itself."""
    images, labels = batch_for(label, 4)
    net = ALL[label]
    one, four = (Chunk(make_plan(net, images.shape[1:], c, dtype="float64")) for c in (1, 4))
    four.run(images, labels)
    together = four.output.copy()
    assert np.isfinite(together).all()
    for i in range(4):
        one.run(images[i : i + 1], labels[i : i + 1])
        np.testing.assert_allclose(one.output[0], together[i], rtol=1e-12, atol=1e-13)
