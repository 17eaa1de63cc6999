"""Fused plans against the steps they replace: which patterns are found, which are left alone, and the same results."""

import numpy as np
import pytest
from nets import Chunk, ended

from corenet import nn, optim
from corenet.engine import initial_state, make_plan
from corenet.kernels.backend import numba_problem, select
from corenet.nn import (
    AvgPool2d,
    Concat,
    Conv1d,
    Conv2d,
    Conv3d,
    CrossEntropy,
    Dropout,
    Identity,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    ReLU,
)

from corenet.nn import Residual, Sequential  # isort: skip

IMAGE = (12, 12, 1)
FUSED = {
    "ReLU, pool": ([Conv2d(1, 6, 5), ReLU(), MaxPool2d(2)], IMAGE),
    "pool, ReLU": ([Conv2d(1, 6, 5, padding=2), MaxPool2d(3, 2), ReLU()], IMAGE),
    "without a bias": ([Conv2d(1, 3, 4, stride=2, padding=1, bias=False), ReLU(), MaxPool2d(2, padding=1)], IMAGE),
    "twice": (
        [Conv2d(1, 6, 5, padding=2), ReLU(), MaxPool2d(2), Conv2d(6, 7, 5, padding=2), ReLU(), MaxPool2d(2)],
        IMAGE,
    ),
    "a volume": (
        [Conv3d(1, 2, 3, padding=1), ReLU(), MaxPool3d((3, 2, 2)), Conv3d(2, 3, 2), ReLU(), MaxPool3d((2, 1, 2))],
        (9, 8, 7, 1),
    ),
    "a sequence": ([Conv1d(2, 5, 9), ReLU(), MaxPool1d(4)], (40, 2)),
}  # fmt: skip
LEFT_ALONE = {
    "another reader": ([Conv2d(1, 6, 5), Concat(MaxPool2d(2), Sequential(AvgPool2d(2)))], IMAGE),
    "grouped": ([Conv2d(1, 4, 3), Conv2d(4, 6, 5, groups=2), MaxPool2d(2)], IMAGE),
    "dilated": ([Conv2d(1, 6, 5, dilation=2), MaxPool2d(2)], IMAGE),
    "something in between": ([Conv2d(1, 6, 5), Dropout(0.3), MaxPool2d(2)], IMAGE),
    "windows side by side in one pixel": ([Conv2d(1, 6, 5, bias=False), MaxPool2d(2, 1)], IMAGE),
    "little to gain": ([Conv2d(1, 32, 3, bias=False), MaxPool2d(3, 2)], IMAGE),
}


def plan_of(layers, shape, fused, dtype="float64"):
    return make_plan(ended(*layers, shape=shape), shape, 3, loss=CrossEntropy(), dtype=dtype, fuse=fused)


def names(plan):
    return [step.operation.name for step in (*plan.forward, *plan.backward)]


def results(plan, shape, backend=None):
    """The loss, and the gradient of every parameter."""
    rng = np.random.default_rng(3)
    chunk = Chunk(plan, backend, initial_state(plan, 1))
    chunk.run(rng.standard_normal((3, *shape)), rng.integers(0, 3, 3))
    return float(chunk.program.metrics[0]), chunk.measured()


@pytest.mark.parametrize("label", FUSED)
def test_fused_steps_give_what_the_others_give(label):
    layers, shape = FUSED[label]
    fused, plain = (plan_of(layers, shape, fused) for fused in (True, False))
    assert (
        sum(name.startswith("pooled_conv.backward") for name in names(fused))
        == 2 * sum(isinstance(layer, Conv1d | Conv2d | Conv3d) for layer in layers) - 1
    )
    assert "pool.max_backward" not in names(fused) and "pool.max_backward" in names(plain)
    (loss, gradients), (same_loss, expected) = results(fused, shape), results(plain, shape)
    assert loss == same_loss
    assert gradients.keys() == expected.keys()
    for name, value in expected.items():
        assert np.abs(value).max() > 0
        np.testing.assert_allclose(gradients[name], value, rtol=1e-10, atol=1e-13)


@pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
@pytest.mark.parametrize("label", FUSED)
def test_compiled_they_do_too(label):
    layers, shape = FUSED[label]
    backend = select("numba")
    (loss, gradients), (same_loss, expected) = (
        results(plan_of(layers, shape, fused, "float32"), shape, backend) for fused in (True, False)
    )
    assert loss == same_loss  # forward they are the same bits
    for name, value in expected.items():
        np.testing.assert_allclose(gradients[name], value, rtol=1e-5, atol=1e-5 * np.abs(value).max())


@pytest.mark.parametrize("label", LEFT_ALONE)
def test_other_patterns_are_left_alone(label):
    layers, shape = LEFT_ALONE[label]
    assert names(plan_of(layers, shape, True)) == names(plan_of(layers, shape, False))


def test_a_relu_goes_behind_the_pool_and_only_there():
    def order(*layers):
        return [n for n in names(plan_of([Conv2d(1, 32, 3), *layers], IMAGE, True)) if "relu" in n or "max" in n]

    relu_last = ["pool.max_forward", "elementwise.relu_forward", "elementwise.relu_backward"]
    assert order(ReLU(), MaxPool2d(3, 2)) == [*relu_last, "pool.max_backward"]
    assert order(MaxPool2d(3, 2), ReLU()) == [*relu_last, "pool.max_backward"]
    before = ["elementwise.relu_forward", "pool.max_forward"]
    assert order(ReLU(), Concat(MaxPool2d(2), AvgPool2d(2)))[:2] == before
    assert order(ReLU(), Residual(Identity()), MaxPool2d(2))[:2] == before


def test_a_pool_of_halves_is_part_of_the_convolution_if_nothing_else_reads_it():
    def of(pool, *more, **how):
        return names(plan_of([Conv2d(1, 4, 3, **how), *more, pool], IMAGE, True))

    for layers in [MaxPool2d(2)], [MaxPool2d(2), ReLU()]:
        found = of(*layers)
        assert "pooled_conv.forward" in found and not {"conv.forward", "pool.max_forward"} & set(found)
    for pool in MaxPool2d(2, padding=1), MaxPool2d(3, 2), MaxPool2d(2, 1), Concat(MaxPool2d(2), AvgPool2d(2)):
        assert "pooled_conv.forward" not in of(pool)
    assert "pooled_conv.forward" not in of(MaxPool2d(2), dilation=2)
    assert "pooled_conv.forward" not in of(MaxPool2d(2), Conv2d(4, 4, 3, groups=2))


def test_a_bias_sums_behind_the_pool():
    """Winograd's convolution, too, and where nothing else changes."""
    for layers in (
        [Conv2d(1, 16, 3), Conv2d(16, 16, 3, algorithm="winograd4"), MaxPool2d(2)],
        [Conv2d(1, 32, 3), MaxPool2d(3, 2)],
    ):
        (*_, fused), (*_, plain) = (
            [
                s
                for s in plan_of(layers, IMAGE, fuse).backward
                if s.operation.name == "bias.backward" and s.layer.type == "Conv2d"
            ][:1]
            for fuse in (True, False)
        )
        assert fused.args[0].nbytes * 4 <= plain.args[0].nbytes
        (_, gradients), (_, expected) = (results(plan_of(layers, IMAGE, fuse), IMAGE) for fuse in (True, False))
        for name, value in expected.items():
            np.testing.assert_allclose(gradients[name], value, rtol=1e-10, atol=1e-13)


def test_prediction_is_fused_too_and_gives_the_same_bits():
    layers, shape = FUSED["twice"]
    net = ended(*layers, shape=shape)
    x = np.random.default_rng(0).standard_normal((2, *shape))
    outputs = []
    for fused in (True, False):
        chunk = Chunk(make_plan(net, shape, 2, dtype="float64", fuse=fused))
        chunk.run(x, None)
        outputs.append(chunk.output.copy())
    np.testing.assert_array_equal(*outputs)


@pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
def test_the_trainer_can_leave_it(trainer):
    """Same forward bits, gradients summed in another order: the first loss is the same, the weights nearly."""
    layers, shape = FUSED["twice"]
    rng = np.random.default_rng(0)
    data = rng.standard_normal((24, *shape)).astype(np.float32), rng.integers(0, 3, 24)
    found = []
    for fuse in (True, False):
        made = trainer(ended(*layers, shape=shape), optim.SGD(0.1), workers=2, fuse=fuse)
        made.fit(data, batch_size=24)
        found.append((made.history["loss"], made.params_sha256(), made.parameters()))
    (loss, sha, weights), (same_loss, other_sha, expected) = found
    assert loss == same_loss and sha != other_sha
    for name, value in expected.items():
        np.testing.assert_allclose(weights[name], value, rtol=1e-4, atol=1e-5)


class Early(nn.Layer):
    """Returns what its child ReLU reads, or what it writes before a pool: neither may vanish."""

    def __init__(self, kind: str):
        self.kind = kind

    def plan(self, p, x):
        if self.kind == "norm":
            y = p.child("norm", nn.BatchNorm2d(3), x)
            p.child("relu", ReLU(), y)
        else:
            y = p.child("relu", ReLU(), x)
            p.child("pool", MaxPool2d(2), y)
        return y


@pytest.mark.parametrize("kind", ["norm", "pool"])
def test_the_output_of_a_prediction_is_kept(kind):
    plans = [make_plan(Sequential(Conv2d(1, 3, 3), Early(kind)), IMAGE, 2, fuse=fuse) for fuse in (True, False)]
    assert names(plans[0]) == names(plans[1])


def test_in_bf16_a_pool_is_part_of_those_convolutions_only_that_stay_float32():
    def forward(channels):
        layers = [Conv2d(1, 4, 3), ReLU(), Conv2d(4, channels, 3), ReLU(), MaxPool2d(2)]
        net = ended(*layers, shape=IMAGE)
        return [step.operation.name for step in make_plan(net, IMAGE, 2, dtype="float32", precision="bf16").forward]

    assert "bf16_conv.forward" in forward(8) and "pooled_conv.forward" not in forward(8)
    grey = ended(Conv2d(1, 8, 3), MaxPool2d(2), shape=IMAGE)
    plan = make_plan(grey, IMAGE, 2, dtype="float32", precision="bf16")
    assert plan.forward[0].operation.name == "pooled_conv.forward"
