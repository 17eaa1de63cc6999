"""Batch normalisation fused with what follows it: which patterns are found, and the same bits as without."""

import numpy as np
import pytest
from nets import Chunk, ended, run_together

from corenet.engine import initial_state, make_plan
from corenet.kernels import elementwise
from corenet.kernels.backend import numba_problem, select
from corenet.nn import AvgPool2d, BatchNorm1d, BatchNorm2d, Conv2d, CrossEntropy, Flatten, Identity, Linear

from corenet.nn import Layer, MaxPool2d, ReLU, Residual, Sequential  # isort: skip

IMAGE = (6, 5, 2)
NORM, ADD = "batchnorm_relu.normalise", "batchnorm_relu.normalise_add"
SUMS, SUMS_ADD = "batchnorm_relu.measure_gradients", "batchnorm_relu.measure_gradients_add"
BACK = "batchnorm_relu.backward"


def same(channels=6, inputs=None):
    return Conv2d(inputs or channels, channels, 3, padding=1)


def block(sync=False, shortcut=None):
    norm = BatchNorm2d(6, sync=sync)
    return Residual(Sequential(same(), BatchNorm2d(6, sync=sync), ReLU(), same(), norm), shortcut), ReLU()


class NormTwice(Layer):
    """relu(norm(x) + x) + norm(x)."""

    def __init__(self):
        self.norm = BatchNorm2d(6)

    def plan(self, p, x):
        to_norm, x = p.fan_out(x, 2)
        first, second = p.fan_out(p.child("norm", self.norm, to_norm), 2)
        return self.sum(p, p.child("relu", ReLU(), self.sum(p, first, x)), second)

    @staticmethod
    def sum(p, a, b):
        y = p.activation(a.shape)
        p.forward(elementwise.add, p.flat(a.data), p.flat(b.data), p.flat(y.data))
        p.share_gradient(a, y)
        p.share_gradient(b, y)
        return y


def projection(sync=False):
    return Sequential(Conv2d(6, 6, 1), BatchNorm2d(6, sync=sync))


STEM = [same(6, 2), BatchNorm2d(6), ReLU()]
# The fused steps in the order of running, and how many of the others are left: ReLUs, sums.
FUSED = {
    "norm, ReLU": ([*STEM, same()], [NORM, SUMS, BACK], 0, 0),
    "the images": ([BatchNorm2d(2), ReLU(), same(3, 2)], [NORM, SUMS], 0, 0),
    "vectors": ([Flatten(), Linear(60, 7), BatchNorm1d(7), ReLU()], [NORM, SUMS, BACK], 0, 0),
    "flattened between": ([same(6, 2), BatchNorm2d(6), Flatten(), ReLU()], [NORM, SUMS, BACK], 0, 0),
    "before a pool": ([*STEM, MaxPool2d(2)], [NORM, SUMS, BACK], 0, 0),
    "sync": ([same(6, 2), BatchNorm2d(6, sync=True), ReLU(), same()], [NORM, SUMS, BACK], 0, 0),
    "the sum's gradient from one reader": (
        [same(6, 2), *block(), AvgPool2d(2)], [NORM, ADD, SUMS_ADD, SUMS, BACK], 0, 1,
    ),
    "blocks": (
        [*STEM, *block(), *block(shortcut=projection())],
        [NORM, NORM, ADD, NORM, ADD, SUMS_ADD, SUMS, BACK, SUMS_ADD, SUMS, BACK, SUMS, BACK], 0, 1,
    ),
    "blocks, sync": (
        [same(6, 2), *block(True), *block(True, projection(True))],
        [NORM, ADD, NORM, ADD, SUMS_ADD, SUMS, BACK, SUMS_ADD, SUMS, BACK], 0, 1,
    ),
}  # fmt: skip
LEFT_ALONE = {
    "another reader of the norm": [same(6, 2), BatchNorm2d(6), Residual(ReLU())],
    "both parts of the sum": [same(6, 2), BatchNorm2d(6), Residual(Identity()), ReLU()],
    "a ReLU elsewhere": [same(6, 2), BatchNorm2d(6), MaxPool2d(2), ReLU()],
    "something in between": [same(6, 2), BatchNorm2d(6), AvgPool2d(2), ReLU()],
    "something else": [same(6, 2), BatchNorm2d(6), same()],
    "another reader of the norm, after the sum": [same(6, 2), NormTwice()],
    "a sum without ReLU": [same(6, 2), Residual(BatchNorm2d(6)), same()],
    "another reader of the sum": [same(6, 2), Residual(BatchNorm2d(6)), Residual(ReLU())],
    "a shortcut in between": [same(6, 2), Residual(BatchNorm2d(6), same()), ReLU()],
    "a ReLU before": [same(6, 2), ReLU(), BatchNorm2d(6)],
}


def plan_of(layers, fuse, dtype="float64", training=True):
    loss = CrossEntropy() if training else None
    return make_plan(ended(*layers, shape=IMAGE), IMAGE, 3, 5, loss=loss, dtype=dtype, fuse=fuse)


def names(plan):
    return [step.operation.name for step in (*plan.forward, *plan.backward)]


def disturbed(plan):
    """Initial values with noise: gamma and beta are not 1 and 0, and some channels change their sign."""
    state, rng = initial_state(plan, 1), np.random.default_rng(2)
    for entry in plan.layout.entries:
        values = plan.layout.get(state, entry)
        values += (rng.random if entry.part == "statistic" else rng.standard_normal)(values.shape).astype(values.dtype)
    return state


def results(plan, backend=None):
    """Of a batch of two chunks, one of them not full: losses, gradients and what was measured."""
    rng = np.random.default_rng(3)
    images, labels = rng.standard_normal((5, *IMAGE)), rng.integers(0, 3, 5)
    first = Chunk(plan, backend, disturbed(plan))
    chunks = [first, Chunk(plan, backend, disturbed(plan), beside=first)]
    for chunk, part in zip(chunks, (slice(0, 3), slice(3, 5)), strict=True):
        chunk.load(images[part], labels[part], first=part.start, count=5)
    run_together(chunks)
    found = {"loss": [float(chunk.program.metrics[0]) for chunk in chunks], **first.products(5)}
    for number, chunk in enumerate(chunks):
        found |= {f"{name} of {number}": value for name, value in chunk.measured().items()}
    return found


@pytest.mark.parametrize("label", FUSED)
def test_what_follows_a_norm_is_found(label):
    layers, expected, relus, sums = FUSED[label]
    fused, plain = names(plan_of(layers, True)), names(plan_of(layers, False))
    assert [name for name in fused if name.startswith("batchnorm_relu")] == expected
    assert sum("relu_" in name and "elementwise" in name for name in fused) == relus
    assert fused.count("elementwise.add") == sums
    assert not any(name.startswith("batchnorm_relu") for name in plain)
    forward_only = [name for name in names(plan_of(layers, True, training=False)) if "batchnorm_relu" in name]
    assert forward_only == [name for name in expected if name in (NORM, ADD)]


@pytest.mark.parametrize("label", LEFT_ALONE)
def test_other_patterns_are_left_alone(label):
    for training in (True, False):
        fused, plain = (plan_of(LEFT_ALONE[label], fuse, training=training) for fuse in (True, False))
        assert names(fused) == names(plain)


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.skipif(
    numba_problem() is not None, reason="Numba is not installed"))])  # fmt: skip
@pytest.mark.parametrize("label", FUSED)
def test_the_bits_are_those_of_the_steps_one_by_one(label, dtype):
    backend = select("numba") if dtype == "float32" else None
    found, expected = (results(plan_of(FUSED[label][0], fuse, dtype), backend) for fuse in (True, False))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.abs(value).max() > 0
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("label", FUSED)
def test_prediction_gives_the_same_bits(label):
    x, outputs = np.random.default_rng(0).standard_normal((2, *IMAGE)), []
    for fuse in (True, False):
        plan = plan_of(FUSED[label][0], fuse, training=False)
        chunk = Chunk(plan, None, disturbed(plan))
        chunk.run(x, None)
        outputs.append(chunk.output[:2].copy())
    assert np.isfinite(outputs[0]).all()
    np.testing.assert_array_equal(*outputs)
