"""Initializers as arguments of layers: which values a net begins with, that it can be described, what is refused."""

import json

import numpy as np
import pytest
from nets import Chunk

import corenet
from corenet import nn
from corenet.engine import initial_state, make_plan
from corenet.errors import ConfigError
from corenet.nn import Conv1d, Conv2d, Conv3d, ConvTranspose2d, Linear, Sequential, build, describe, init

LAYERS = {
    "Conv1d": ((7, 4), (3, 2, 6), lambda **how: Conv1d(4, 6, 3, groups=2, **how)),
    "Conv2d": ((5, 6, 4), (3, 2, 2, 6), lambda **how: Conv2d(4, 6, (3, 2), groups=2, **how)),
    "Conv3d": ((3, 4, 5, 4), (2, 3, 1, 4, 6), lambda **how: Conv3d(4, 6, (2, 3, 1), **how)),
    "ConvTranspose2d": ((3, 3, 4), (3, 2, 3, 4), lambda **how: ConvTranspose2d(4, 6, (3, 2), 2, groups=2, **how)),
    "Linear": ((60,), (60, 6), lambda **how: Linear(60, 6, **how)),
}
every_layer = pytest.mark.parametrize("kind", LAYERS)


def first(net, shape, seed=0) -> dict[str, np.ndarray]:
    """The parameters that a net begins with."""
    plan = make_plan(net, shape, 1)
    return plan.layout.arrays(initial_state(plan, seed))


def drawn(initializer, shape, seed, number):
    generator = np.random.Generator(np.random.Philox(key=np.array([seed, number], np.uint64)))
    return np.asarray(initializer(generator, shape), np.float32)


@every_layer
def test_by_default_weight_and_bias_are_pytorchs(kind):
    shape, weight, make = LAYERS[kind]
    found, same = first(make(), shape, 5), init.uniform_fan_in(int(np.prod(weight[:-1])))
    assert (found["weight"] == drawn(same, weight, 5, 0)).all() and (found["bias"] == drawn(same, (6,), 5, 1)).all()
    for how in ({"weight_init": "torch_default"}, {"weight_init": init.torch_default(), "bias_init": "torch_default"}):
        again = first(make(**how), shape, 5)
        assert all((again[name] == found[name]).all() for name in found)


@every_layer
@pytest.mark.parametrize("given", ["orthogonal", init.he_normal("fan_out", gain=3), init.constant(0.25)], ids=repr)
def test_weights_begin_as_told_and_biases_as_pytorchs(kind, given):
    shape, weight, make = LAYERS[kind]
    found = first(make(weight_init=given), shape, 5)
    assert (found["weight"] == drawn(init.get_initializer(given), weight, 5, 0)).all()
    assert (found["bias"] == first(make(), shape, 5)["bias"]).all() and found["bias"].any()


@every_layer
def test_biases_begin_as_told(kind):
    shape, _, make = LAYERS[kind]
    plain = first(make(), shape)
    for given, values in (("ones", 1), (init.constant(-2), -2), ("keras_default", 0)):
        found = first(make(bias_init=given), shape)
        assert (found["bias"] == values).all() and (found["weight"] == plain["weight"]).all()
    assert "bias" not in first(make(bias=False, bias_init="ones"), shape)


@every_layer
def test_keras_default_is_that_of_keras_for_both(kind):
    shape, weight, make = LAYERS[kind]
    found = first(make(weight_init="keras_default"), shape)
    assert (found["weight"] == drawn(init.glorot_uniform(), weight, 0, 0)).all() and not found["bias"].any()
    assert first(make(weight_init="keras_default", bias_init="torch_default"), shape)["bias"].any()


def test_dirac_hands_the_input_on():
    x = np.random.default_rng(0).standard_normal((5, 4, 3)).astype(np.float32)
    net = Sequential(Conv2d(3, 3, 3, padding="same", weight_init="dirac", bias_init="zeros"))
    chunk = Chunk(make_plan(net, x.shape, 1))
    chunk.run(x[None], [0])
    assert (chunk.output[0] == x).all()
    assert first(Conv1d(1, 1, 3, weight_init="dirac"), (5, 1))["weight"].ravel().tolist() == [0, 1, 0]


# As data.

INITIALIZERS = [
    init.zeros(), init.constant(0.1), init.normal(std=0.5), init.he_normal(truncated=True), init.dirac(groups=2),
    init.orthogonal(gain=np.float32(2)), init.uniform_fan_in(np.int64(9)), init.he_uniform("fan_out"),
]  # fmt: skip


@pytest.mark.parametrize("given", INITIALIZERS, ids=repr)
def test_an_initializer_survives_being_described_and_written(given):
    net = Sequential(Conv2d(1, 4, 3, weight_init=given), nn.Flatten(), Linear(36, 3, bias_init="ones"))
    again = build(json.loads(json.dumps(describe(net))))
    assert repr(again) == repr(net) and again.layers[0].weight_init == given
    found, expected = first(again, (5, 5, 1)), first(net, (5, 5, 1))
    assert all((found[name] == expected[name]).all() for name in expected)
    assert eval(repr(given), {"init": init}) == given


def test_initializers_of_the_same_name_and_arguments_are_equal():
    assert init.orthogonal(2) == init.orthogonal(gain=2.0) and hash(init.orthogonal(2)) == hash(init.orthogonal(2.0))
    assert init.orthogonal(2) != init.orthogonal() and init.zeros() != init.ones() and init.he_normal() != "he_normal"
    assert init.he_normal() == init.INITIALIZERS["kaiming_normal"]
    assert repr(init.he_normal("fan_out", gain=2)) == "init.he_normal(mode='fan_out', gain=2, truncated=False)"
    assert repr(init.zeros()) == "init.zeros()" and "Saxe" in init.orthogonal.__doc__


def test_layers_are_written_without_what_is_as_by_default():
    assert repr(Conv2d(1, 4, 3)) == "Conv2d(in_channels=1, out_channels=4, kernel_size=(3, 3))"
    assert repr(Conv2d(1, 4, 3, (1, 2), padding=1, bias=False)) == (
        "Conv2d(in_channels=1, out_channels=4, kernel_size=(3, 3), stride=(1, 2), padding=(1, 1), bias=False)"
    )
    assert repr(Linear(2, 3, weight_init="zeros", bias_init=init.constant(1))) == (
        "Linear(in_features=2, out_features=3, weight_init='zeros', bias_init=init.constant(value=1))"
    )
    assert repr(nn.ConvTranspose2d(1, 2, 3)) == "ConvTranspose2d(in_channels=1, out_channels=2, kernel_size=(3, 3))"
    assert repr(nn.Dropout()) == "Dropout()" and repr(nn.GELU("tanh")) == "GELU(approximate='tanh')"


# What is refused.

NAMES = ", ".join(map(repr, init.INITIALIZERS))
ANY = f"expected an initializer of corenet.nn.init, or one of {NAMES}, got"
REFUSED = [
    (
        lambda: Conv2d(1, 2, 3, weight_init="he_norml"),
        f"Conv2d(weight_init=…): {ANY} 'he_norml'. Did you mean 'he_normal'?",
    ),
    (lambda: Linear(1, 2, bias_init="zero"), f"Linear(bias_init=…): {ANY} 'zero'. Did you mean 'zeros'?"),
    (lambda: Linear(1, 2, weight_init=None), f"Linear(weight_init=…): {ANY} None"),
    (lambda: Conv1d(1, 2, 3, weight_init=3), f"Conv1d(weight_init=…): {ANY} 3"),
    (
        lambda: Conv3d(1, 2, 3, weight_init=max),
        f"Conv3d(weight_init=…): {ANY} <built-in function max>. Nets go to workers and into model files as plain data, "
        "where a function cannot go",
    ),
    (
        lambda: Linear(1, 2, weight_init="dirac"),
        "Linear(weight_init=…): expected an initializer for arrays of 2 axes, got 'dirac', which needs a filter of "
        "shape (…, in, out)",
    ),
    (
        lambda: ConvTranspose2d(1, 2, 3, bias_init=init.orthogonal()),
        "ConvTranspose2d(bias_init=…): expected an initializer for arrays of 1 axis, got init.orthogonal(gain=1.0), "
        "which needs a weight of shape (…, in, out)",
    ),
    (
        lambda: build({**describe(Linear(1, 2)), "weight_init": {"init": "exit"}}),
        "net description, init: expected one of " + ", ".join(nn.initializer.MAKERS) + ", got 'exit'",
    ),
    (
        lambda: build({**describe(Linear(1, 2)), "weight_init": {"init": "zeros", "gain": 1}}),
        "net description, Linear: got zeros() got an unexpected keyword argument 'gain'",
    ),
    (
        lambda: build({**describe(Linear(1, 2)), "weight_init": {"init": "constant", "value": "x"}}),
        "constant(value=…): expected a finite number, in float32, got 'x'",
    ),
]  # fmt: skip


@pytest.mark.parametrize("make, message", REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_what_is_refused(make, message):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == message


def test_an_unhashable_name_is_refused():
    with pytest.raises(ConfigError, match="net description, Linear"):
        build({**describe(Linear(1, 2)), "weight_init": {"init": []}})
    with pytest.raises(ConfigError, match=r"Linear\(bias_init"):
        Linear(1, 2, bias_init=np.zeros(2))


def test_a_net_with_initializers_is_trained_by_workers_and_saved(trainer, tmp_path):
    x, y = np.random.default_rng(0).standard_normal((40, 4, 4, 1)).astype(np.float32), np.arange(40) % 3
    first = Conv2d(1, 4, 3, algorithm="direct", weight_init=init.orthogonal(gain=2))
    net = Sequential(first, nn.Flatten(), Linear(16, 3, bias_init="ones"))
    made = trainer(net, workers=2, kernels="numpy")
    made.fit((x, y), callbacks=())
    made.save(tmp_path / "model")
    loaded = corenet.load(tmp_path / "model")
    assert repr(loaded.net) == repr(net) and loaded.params_sha256() == made.params_sha256()
