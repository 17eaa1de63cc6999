"""What a user reads who gives layers of tests/nets_layers.py what they cannot take; and what they do at extremes."""

import json

import numpy as np
import pytest
from nets import Chunk, Given, Tap, some_batch

from corenet.engine import make_plan
from corenet.errors import ConfigError, ShapeError
from corenet.kernels.backend import numba_problem, select
from corenet.nn import (
    ELU,
    GELU,
    AdaptiveAvgPool2d,
    Concat,
    Conv2d,
    CrossEntropy,
    Dropout2d,
    Flatten,
    GlobalAvgPool2d,
    GlobalMaxPool2d,
    GroupNorm,
    Identity,
    LayerNorm,
    LeakyReLU,
    Linear,
    LocalResponseNorm,
    MaxPool2d,
    ReLU,
    Reshape,
    Residual,
    Sequential,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
    Upsample,
    ZeroPad2d,
    build,
    describe,
)

needs_numba = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
AT_LEAST_1 = "expected an integer of at least 1"
ARGUMENTS = [
    (lambda: LeakyReLU("x"), "LeakyReLU(negative_slope=…): expected a finite number, got 'x'"),
    (lambda: LeakyReLU(float("inf")), "LeakyReLU(negative_slope=…): expected a finite number, got inf"),
    (lambda: ELU(None), "ELU(alpha=…): expected a finite number, got None"),
    (lambda: ELU(float("nan")), "ELU(alpha=…): expected a finite number, got nan"),
    (lambda: GELU(True), "GELU(approximate=…): expected 'none' or 'tanh', got True"),
    (lambda: GroupNorm(0, 4), f"GroupNorm(num_groups=…): {AT_LEAST_1}, got 0"),
    (lambda: GroupNorm(2, 4.0), f"GroupNorm(num_channels=…): {AT_LEAST_1}, got 4.0"),
    (lambda: GroupNorm(3, 4), "GroupNorm(num_groups=…): expected a divisor of num_channels, which is 4, got 3"),
    (lambda: GroupNorm(2, 4, eps=0), "GroupNorm(eps=…): expected a number above 0, got 0"),
    (lambda: LayerNorm(0), f"LayerNorm(normalized_shape=…): {AT_LEAST_1}, got 0"),
    (lambda: LayerNorm((4, -1)), f"LayerNorm(normalized_shape=…): {AT_LEAST_1}, got -1"),
    (lambda: LayerNorm(()), "LayerNorm(normalized_shape=…): expected at least one axis, got ()"),
    (lambda: LayerNorm(4, eps=-1), "LayerNorm(eps=…): expected a number above 0, got -1"),
    (lambda: LocalResponseNorm(0), f"LocalResponseNorm(size=…): {AT_LEAST_1}, got 0"),
    (lambda: LocalResponseNorm(5, alpha=-1), "LocalResponseNorm(alpha=…): expected a number of at least 0, got -1"),
    (lambda: LocalResponseNorm(5, beta="x"), "LocalResponseNorm(beta=…): expected a finite number, got 'x'"),
    (lambda: LocalResponseNorm(5, k=0), "LocalResponseNorm(k=…): expected a number above 0, got 0"),
    (lambda: Dropout2d(1), "Dropout2d(p=…): expected a probability, 0 <= p < 1, got 1"),
    (lambda: Upsample(0), f"Upsample(scale_factor=…): {AT_LEAST_1}, got 0"),
    (lambda: Upsample(1.5), f"Upsample(scale_factor=…): {AT_LEAST_1}, got 1.5"),
    (lambda: Upsample((2, 2, 2)), "Upsample(scale_factor=…): expected an integer or a pair of integers, got (2, 2, 2)"),
    (lambda: Upsample(2, "cubic"), "Upsample(mode=…): expected 'nearest' or 'bilinear', got 'cubic'"),
    (
        lambda: Upsample(2, align_corners=True),
        "Upsample(align_corners=…): expected False with mode='nearest', got True",
    ),
    (lambda: AdaptiveAvgPool2d((2, 0)), f"AdaptiveAvgPool2d(output_size=…): {AT_LEAST_1}, got 0"),
    (lambda: ZeroPad2d(-1), "ZeroPad2d(padding=…): expected an integer of at least 0, got -1"),
    (lambda: ZeroPad2d((1, 2)), "ZeroPad2d(padding=…): expected an integer, or (left, right, top, bottom), got (1, 2)"),
    (lambda: Reshape(), "Reshape(shape=…): expected at least one size, got none"),
    (lambda: Reshape(3, -2), f"Reshape(shape=…): {AT_LEAST_1}, got -2"),
    (lambda: Reshape(-1, 3, -1), "Reshape(shape=…): expected at most one size of -1, got (-1, 3, -1)"),
    (lambda: Reshape((3, 2)), "Reshape(shape=…): expected integers, got (3, 2). Write Reshape(3, 2)"),
    (lambda: Concat(), "Concat(branches=…): expected at least one branch, got none"),
    (lambda: Concat(Identity(), 3), "Concat, part 1: expected a layer, got 3"),
    (lambda: Concat([Identity()]), "Concat, part 0: expected a layer, got [Identity()]. Write Concat(*layers)"),
    (lambda: Concat(Tanh(), [ReLU()]), "Concat, part 1: expected a layer, got [ReLU()]. Write Sequential(*layers)"),
    (lambda: Residual([ReLU()]), "Residual, part 0: expected a layer, got [ReLU()]. Write Sequential(*layers)"),
]


@pytest.mark.parametrize("make, message", ARGUMENTS, ids=[message for _, message in ARGUMENTS])
def test_arguments_that_a_layer_cannot_take(make, message):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == message


NO_IMAGE = "expected images (height, width, channels), got input of shape (72,). Place it before Flatten and Linear"
GEOMETRIES = [
    (GroupNorm(2, 4), "GroupNorm): expected 4 channels (num_channels), got 1, from an input of shape (9, 8, 1). "
                      "Set num_channels=1"),
    (LayerNorm((8, 2)), "LayerNorm): expected an input whose last axes are (8, 2) (normalized_shape), "
                        "got input of shape (9, 8, 1). Set normalized_shape=(8, 1)"),
    (LayerNorm((1, 9, 8, 1)), "LayerNorm): expected an input whose last axes are (1, 9, 8, 1) (normalized_shape), "
                              "got input of shape (9, 8, 1). Set normalized_shape=(9, 8, 1)"),
    (Reshape(5, 5), "Reshape): expected 25 elements, for shape (5, 5), got 72, from an input of shape (9, 8, 1). "
                    "Give sizes whose product is 72"),
    (Reshape(100), "Reshape): expected 100 elements, for shape (100,), got 72, from an input of shape (9, 8, 1). "
                   "Give sizes whose product is 72"),
    (Reshape(5, -1), "Reshape): expected a multiple of 5 elements, for shape (5, -1), got 72, from an input of shape "
                     "(9, 8, 1). Give sizes whose product is 72"),
    (Concat(Identity(), Conv2d(1, 4, 3)),
     "(Concat): expected branches that differ in channels only; branch 0 gives (9, 8, 1), got (7, 6, 4) from branch 1. "
     "Give all branches the same strides, and padding that keeps the size"),
    (Concat(Identity(), ReLU(), Flatten()),
     "layer 0 (Concat): expected branches that differ in channels only; branch 0 gives (9, 8, 1), got (72,) from "
     "branch 2. Give all branches the same strides, and padding that keeps the size"),
    (Residual(Identity(), Concat(MaxPool2d(2), Identity())),
     "layer 0.shortcut (Concat): expected branches that differ in channels only; branch 0 gives (4, 4, 1), got "
     "(9, 8, 1) from branch 1. Give all branches the same strides, and padding that keeps the size"),
    (Concat(Identity(), Sequential(Identity(), Conv2d(3, 4, 3))),
     "layer 0.1.1 (Conv2d): expected 3 input channels (in_channels), got 1, from an input of shape (9, 8, 1). "
     "Set in_channels=1"),
]  # fmt: skip
GEOMETRIES += [
    (Sequential(Flatten(), layer), f"{type(layer).__name__}): {NO_IMAGE}")
    for layer in (
        Dropout2d(), Upsample(2), AdaptiveAvgPool2d(1), GlobalAvgPool2d(), GlobalMaxPool2d(), ZeroPad2d(1)
    )
]  # fmt: skip


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layer, message", GEOMETRIES, ids=[message[:40] for _, message in GEOMETRIES])
def test_layers_that_do_not_fit(layer, message, training):
    with pytest.raises(ShapeError) as caught:
        make_plan(Sequential(layer), (9, 8, 1), 2, loss=CrossEntropy() if training else None)
    assert str(caught.value).startswith("layer 0") and str(caught.value).endswith(message)


def test_sizes_may_be_of_numpy_and_travel_as_lists():
    layers = [
        Reshape(np.int64(3), np.prod((2, 2))),
        LayerNorm([np.int64(3), 4], np.float32(0.25)),
        ZeroPad2d([np.int32(1), 2, 0, 3]),
        Upsample(np.int64(2)),
    ]
    descriptions = [json.loads(json.dumps(describe(layer))) for layer in layers]
    assert descriptions == [
        {"type": "Reshape", "shape": [3, 4]},
        {"type": "LayerNorm", "normalized_shape": [3, 4], "eps": 0.25, "elementwise_affine": True},
        {"type": "ZeroPad2d", "padding": [1, 2, 0, 3]},
        {"type": "Upsample", "scale_factor": [2, 2], "mode": "nearest", "align_corners": False},
    ]
    assert [repr(build(description)) for description in descriptions] == [repr(layer) for layer in layers]
    assert repr(layers[0]) == "Reshape(3, 4)"


@pytest.mark.parametrize("shape, output", [((-1,), (72,)), ((9, -1), (9, 8)), ((-1, 2, 4), (9, 2, 4))])
def test_reshape_finds_one_size(shape, output):
    layer = build(json.loads(json.dumps(describe(Reshape(*shape)))))
    assert make_plan(layer, (9, 8, 1), 2).output_shape == output and layer.shape == shape


def test_a_description_of_reshape_has_sizes():
    for description in ({"type": "Reshape"}, {"type": "Reshape", "shape": 3}):
        with pytest.raises(ConfigError, match="net description, Reshape"):
            build(description)


def test_parameters_of_branches_are_named_by_number():
    net = Sequential(Identity(), Concat(Identity(), Conv2d(1, 2, 1), Sequential(Conv2d(1, 2, 1))))
    names = [entry.name for entry in make_plan(net, (4, 4, 1), 2).layout.entries]
    assert names == ["1.1.weight", "1.1.bias", "1.2.0.weight", "1.2.0.bias"]


# At extremes.


@pytest.mark.parametrize("kernels", [pytest.param("numba", marks=needs_numba), "numpy"])
@pytest.mark.parametrize(
    "layer", [LeakyReLU(), ELU(), GELU(), GELU("tanh"), SiLU(), Tanh(), Sigmoid(), Softmax()], ids=repr
)
def test_large_inputs_have_finite_outputs_and_gradients(layer, kernels):
    """Without a warning of NumPy, and the gradient of a dense layer before it is as finite."""
    net = Sequential(Flatten(), Linear(4, 4), layer, Linear(4, 3))
    images, labels = some_batch(3, (2, 2, 1))
    chunk = Chunk(make_plan(net, (2, 2, 1), 3, loss=CrossEntropy()), select(kernels))
    for scale in (1e4, 1e15):
        assert np.isfinite(chunk.run(scale * images, labels))
        assert all(np.isfinite(a).all() for a in (*chunk.measured().values(), *chunk.products(3).values()))


@pytest.mark.parametrize("kernels", [pytest.param("numba", marks=needs_numba), "numpy"])
@pytest.mark.parametrize("layer", [GroupNorm(1, 2), LayerNorm((6, 6, 2))], ids=repr)
def test_a_small_variance_far_from_zero_is_kept(layer, kernels):
    """Two passes: Σx² − (Σx)²/n of such numbers has no correct digit in float32."""
    images = (3000 + np.random.default_rng(0).standard_normal((4, 6, 6, 2))).astype(np.float32)
    chunk = Chunk(make_plan(Sequential(layer), (6, 6, 2), 4), select(kernels))
    chunk.run(images, np.zeros(4, int))
    exact = images - images.mean(axis=(1, 2, 3), dtype=np.float64, keepdims=True)
    exact /= np.sqrt(np.square(exact).mean(axis=(1, 2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(chunk.output, exact, rtol=0, atol=2e-3)


@pytest.mark.parametrize("kernels", [pytest.param("numba", marks=needs_numba), "numpy"])
def test_normalising_a_single_value_is_finite(kernels):
    """Its variance is 0: the output is beta, and no gradient passes."""
    net = Sequential(Flatten(), Linear(4, 2), GroupNorm(2, 2), LayerNorm(2), Linear(2, 3))
    chunk = Chunk(make_plan(net, (2, 2, 1), 3, loss=CrossEntropy()), select(kernels))
    images, labels = some_batch(2, (2, 2, 1))
    assert np.isfinite(chunk.run(images, labels))
    found = {**chunk.measured(), **chunk.products(2)}
    assert all(np.isfinite(value).all() for value in found.values())
    assert (found["1.weight"] == 0).all() and (found["2.weight"] == 0).all()


@pytest.mark.parametrize("kernels", [pytest.param("numba", marks=needs_numba), "numpy"])
def test_dropout2d_drops_whole_channels_by_sample_and_step(kernels):
    chunk = Chunk(
        make_plan(ended_with(Dropout2d(0.5)), (3, 3, 64), 4, loss=CrossEntropy()), select(kernels), apart=True
    )

    def kept(samples, step):
        chunk.run(np.ones((len(samples), 3, 3, 64)), np.zeros(len(samples), int), samples, step=step)
        y = next(iter(chunk.program.calls())).args[1][: len(samples)].reshape(-1, 9, 64)
        assert set(np.unique(y)) == {0, 2} and (y == y[:, :1]).all()
        return y[:, 0] == 2

    first = kept([5, 9, 700_000], 3)
    assert 0.4 < first.mean() < 0.6
    assert (kept([9, 5], 3) == first[[1, 0]]).all()  # of the sample, wherever it is
    for other in (first[1], first[2], kept([5], 4)[0]):
        assert 10 < (other != first[0]).sum() < 54


def ended_with(*layers):
    return Sequential(*layers, GlobalAvgPool2d(), Linear(64, 3))


def test_layers_of_a_net_drop_different_channels():
    plan = make_plan(ended_with(Dropout2d(0.5), Dropout2d(0.5)), (3, 3, 64), 1, loss=CrossEntropy())
    chunk = Chunk(plan, apart=True)
    chunk.run(np.ones((1, 3, 3, 64)), [0])
    masks = [call.args[2] for call in [*chunk.program.calls()][:2]]
    assert 10 < (masks[0] != masks[1]).sum() < 54


def test_the_largest_of_many_pixels_gets_the_gradient():
    tap, given = Tap(), Given(np.array([[3.0, 5.0]]))
    images = np.random.default_rng(0).standard_normal((1, 20, 20, 2))
    images[0, 19, 18] = 10
    Chunk(make_plan(Sequential(tap, GlobalMaxPool2d()), (20, 20, 2), 1, loss=given)).run(images, [0])
    assert given.output.tolist() == [[10, 10]]
    assert tap.gradient[0, 19, 18].tolist() == [3, 5] and np.count_nonzero(tap.gradient) == 2
