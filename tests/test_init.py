"""Initializers: PyTorch's and Keras's distributions, matrices that are what they are called, names, mistakes."""

import math

import numpy as np
import pytest

from corenet import nn
from corenet.engine import initial_state, make_plan
from corenet.errors import ConfigError, CorenetError, ShapeError
from corenet.nn import init

SHAPES = [(3, 5, 40, 60), (300, 200), (5, 50, 80)]  # two dimensions of filter, none, one
RANDOM = sorted(set(init.INITIALIZERS) - {"dirac", "zeros", "ones"})


def draw(initializer, shape, seed=0):
    values = np.asarray(init.get_initializer(initializer)(np.random.default_rng(seed), shape))
    assert values.shape == shape and values.dtype == np.float64 and np.isfinite(values).all()
    return values


def check(values, kind, std, mean=0.0):
    """Mean and deviation within 5 standard errors, the bounds kept and nearly reached, the shape of the kind."""
    size, spread = values.size, std * math.sqrt(12) / 2
    assert abs(values.mean() - mean) < 5 * std / math.sqrt(size)
    assert values.std() == pytest.approx(std, rel=5 / math.sqrt(size))
    farthest = np.abs(values - mean).max()
    if kind == "uniform":
        assert spread * (1 - 20 / size) < farthest <= spread
    elif kind == "truncated":
        cut = 2 * std / 0.87962566103423978
        assert cut * 0.99 < farthest <= cut
    else:
        assert farthest > 3.5 * std
    inside = {"uniform": 1 / math.sqrt(3), "normal": 0.6827, "truncated": math.erf(0.8796 / math.sqrt(2)) / 0.9545}[
        kind
    ]
    assert (np.abs(values - mean) < std).mean() == pytest.approx(inside, abs=5 / math.sqrt(size))


def torch_fans(torch, shape):
    """Of the same weight in PyTorch's order: (out, in, …)."""
    weight = torch.empty(shape[-1], shape[-2], *shape[:-2])
    return torch.nn.init._calculate_fan_in_and_fan_out(weight)


@pytest.mark.parametrize("shape", SHAPES)
def test_fans_are_pytorchs(shape):
    assert init.fans(shape) == torch_fans(pytest.importorskip("torch"), shape)
    field = math.prod(shape[:-2])
    assert init.fans(shape) == (field * shape[-2], field * shape[-1])


@pytest.mark.parametrize("shape", SHAPES)
def test_distributions(shape):
    fan_in, fan_out = math.prod(shape[:-1]), math.prod(shape[:-2]) * shape[-1]
    he, glorot = math.sqrt(2 / fan_in), math.sqrt(2 / (fan_in + fan_out))
    check(draw("torch_default", shape), "uniform", 1 / math.sqrt(3 * fan_in))
    check(draw("keras_default", shape), "uniform", glorot)
    check(draw("he_normal", shape), "normal", he)
    check(draw("he_uniform", shape), "uniform", he)
    check(draw("he_normal_truncated", shape), "truncated", he)
    check(draw("glorot_normal", shape), "normal", glorot)
    check(draw("glorot_uniform", shape), "uniform", glorot)
    check(draw("glorot_normal_truncated", shape), "truncated", glorot)
    check(draw(init.he_normal("fan_out", gain=3.0), shape), "normal", 3 / math.sqrt(fan_out))
    check(draw(init.he_uniform("fan_out", gain=0.5), shape), "uniform", 0.5 / math.sqrt(fan_out))
    check(draw(init.glorot_normal(gain=2.0), shape), "normal", 2 * glorot)
    check(draw(init.glorot_uniform(gain=2.0), shape), "uniform", 2 * glorot)
    check(draw(init.normal(2.0, 0.3), shape), "normal", 0.3, mean=2.0)
    check(draw(init.uniform(1.0, 4.0), shape), "uniform", 3 / math.sqrt(12), mean=2.5)
    check(draw("normal", shape), "normal", 1)
    check(draw("uniform", shape), "uniform", 1 / math.sqrt(12), mean=0.5)
    check(draw("random_normal", shape), "normal", 0.05)
    check(draw("random_uniform", shape), "uniform", 0.1 / math.sqrt(12))
    check(draw("truncated_normal", shape), "truncated", 0.87962566103423978)


@pytest.mark.parametrize("name, more", [
    ("kaiming_normal", {}),
    ("kaiming_uniform", {}),
    ("kaiming_uniform", {"mode": "fan_out", "nonlinearity": "tanh"}),
    ("xavier_normal", {}),
    ("xavier_uniform", {}),
    ("xavier_uniform", {"gain": 3.0}),
    ("trunc_normal", {"mean": 1.0, "std": 2.0, "a": -1.0, "b": 4.0}),
])  # fmt: skip
def test_distributions_are_pytorchs(name, more):
    """The same quantiles as what PyTorch's function of that name fills a weight with."""
    torch = pytest.importorskip("torch")
    shape, arguments = (3, 3, 60, 90), dict(more)
    torch.manual_seed(0)
    theirs = torch.empty(90, 60, 3, 3, dtype=torch.float64)
    getattr(torch.nn.init, name + "_")(theirs, **more)
    if "nonlinearity" in arguments:
        arguments["gain"] = init.gain(arguments.pop("nonlinearity"))
    ours = {
        "kaiming_normal": init.he_normal, "kaiming_uniform": init.he_uniform, "xavier_normal": init.glorot_normal,
        "xavier_uniform": init.glorot_uniform,
        "trunc_normal": lambda mean, std, a, b: init.truncated_normal(mean, std, a, b),
    }[name](**arguments)  # fmt: skip
    got, expected = np.sort(draw(ours, shape), axis=None), np.sort(theirs.numpy(), axis=None)
    steps = np.linspace(0.02, 0.98, 25) * got.size
    assert np.abs(got - expected)[steps.astype(int)].max() < 0.03 * expected.std()


def test_torch_default_is_that_of_pytorchs_layers():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    for layer, shape in ((torch.nn.Linear(300, 200), (300, 200)), (torch.nn.Conv2d(20, 30, (3, 5)), (3, 5, 20, 30))):
        bias = init.uniform_fan_in(math.prod(shape[:-1]))
        bound = np.abs(draw("torch_default", shape)).max()
        assert layer.weight.abs().max().item() == pytest.approx(bound, rel=1e-2)
        theirs = layer.bias.abs().max().item()
        assert np.abs(draw(bias, (20000,))).max() == pytest.approx(theirs, rel=0.1)


def test_gains_are_pytorchs():
    torch = pytest.importorskip("torch")
    for name in ("linear", "sigmoid", "tanh", "relu", "selu", "leaky_relu"):
        assert init.gain(name) == pytest.approx(torch.nn.init.calculate_gain(name), rel=1e-12)
    assert init.gain("leaky_relu", 0.3) == pytest.approx(torch.nn.init.calculate_gain("leaky_relu", 0.3), rel=1e-12)


@pytest.mark.parametrize("shape", [(3, 3, 4, 8), (3, 3, 2, 40), (5, 7), (7, 5), (6, 6)])
def test_orthogonal(shape):
    """Orthonormal columns, or rows where they are fewer."""
    matrix = draw(init.orthogonal(gain=2.0), shape).reshape(-1, shape[-1])
    product = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-12)


def test_orthogonal_matrices_are_spread_evenly():
    """Mezzadri's correction: the trace of a random rotation or reflection has mean 0 and variance 1."""
    traces = np.array([np.trace(draw("orthogonal", (4, 4), seed)) for seed in range(2000)])
    assert abs(traces.mean()) < 5 / math.sqrt(2000)
    assert traces.var() == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("shape", [(3, 3, 4, 4), (3, 5, 2, 6), (4, 2, 6, 3), (5, 3, 3), (3, 3, 3, 2, 2)])
def test_dirac_is_pytorchs(shape):
    torch = pytest.importorskip("torch")
    theirs = torch.empty(shape[-1], shape[-2], *shape[:-2])
    torch.nn.init.dirac_(theirs)
    axes = (*range(2, len(shape)), 1, 0)
    assert (draw("dirac", shape) == theirs.numpy().transpose(axes)).all()


@pytest.mark.parametrize("groups", [2, 3])
def test_dirac_of_groups_is_pytorchs(groups):
    torch = pytest.importorskip("torch")
    theirs = torch.empty(6, 2, 3, 3)
    torch.nn.init.dirac_(theirs, groups)
    assert (draw(init.dirac(groups), (3, 3, 2, 6)) == theirs.numpy().transpose(2, 3, 1, 0)).all()


def test_dirac_by_hand():
    values = draw("dirac", (3, 3, 2, 3))
    assert values.sum() == 2 and values[1, 1, 0, 0] == values[1, 1, 1, 1] == 1


def test_constants_and_names():
    assert (draw("zeros", (3, 2)) == 0).all() and (draw("ones", (4,)) == 1).all()
    assert (draw(init.constant(-2.5), (3,)) == -2.5).all()
    assert {"torch_default", "he_normal", "he_uniform", "glorot_uniform", "glorot_normal", "orthogonal"} <= set(RANDOM)
    own = init.constant(3)
    assert init.get_initializer(own) is own
    for torchs, ours in (("kaiming", "he"), ("xavier", "glorot")):
        for kind in ("normal", "uniform"):
            assert init.INITIALIZERS[f"{torchs}_{kind}"] is init.INITIALIZERS[f"{ours}_{kind}"]


@pytest.mark.parametrize("name", RANDOM)
def test_same_generator_same_values(name):
    assert (draw(name, (3, 3, 4, 5)) == draw(name, (3, 3, 4, 5))).all()
    assert (draw(name, (3, 3, 4, 5)) != draw(name, (3, 3, 4, 5), seed=1)).any()


def test_net_that_uses_them():
    """In the state vector, as an initializer of a layer's own."""

    class Both(nn.Layer):
        def plan(self, p, x):
            p.parameter("weight", (3, 3, 2, 4), init.get_initializer("orthogonal"))
            p.parameter("bias", (4,), init.get_initializer("ones"))
            return x

    plan = make_plan(Both(), (4,), 1)
    arrays = plan.layout.arrays(initial_state(plan, 0))
    matrix = arrays["weight"].reshape(18, 4)
    assert arrays["weight"].dtype == np.float32 and (arrays["bias"] == 1).all()
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(4), atol=1e-6)


def test_truncated_normal_far_from_its_mean_ends():
    values = draw(init.truncated_normal(0.0, 1.0, 2.5, 3.0), (4, 300))
    assert values.min() >= 2.5 and values.max() <= 3.0 and values.std() > 0.1
    values = draw(init.truncated_normal(-50.0, 0.5, -51.0, -49.0), (200, 300))
    check(values, "truncated", 0.5 * init.TWO_SIGMA, mean=-50.0)


@pytest.mark.parametrize("make, named, error", [
    (lambda: init.constant("a"), "constant(value", ConfigError),
    (lambda: init.constant(math.inf), "constant(value", ConfigError),
    (lambda: init.constant(1e39), "constant(value", ConfigError),
    (lambda: init.normal(math.nan), "normal(mean", ConfigError),
    (lambda: init.normal(std=1e39), "normal(std", ConfigError),
    (lambda: init.uniform(-1e39), "uniform(low", ConfigError),
    (lambda: init.uniform(0, 1e39), "uniform(high", ConfigError),
    (lambda: init.normal(0, 0), "normal(std", ConfigError),
    (lambda: init.uniform(math.inf, 1), "uniform(low", ConfigError),
    (lambda: init.uniform(1, 1), "uniform(high", ConfigError),
    (lambda: init.truncated_normal(std=-1), "truncated_normal(std", ConfigError),
    (lambda: init.truncated_normal(mean=None), "truncated_normal(mean", ConfigError),
    (lambda: init.truncated_normal(low=3, high=2), "truncated_normal(high", ConfigError),
    (lambda: init.truncated_normal(low=9, high=10), "truncated_normal(low=…, high=…)", ConfigError),
    (lambda: init.truncated_normal(low=3.2, high=9), "truncated_normal(low=…, high=…)", ConfigError),
    (lambda: init.he_normal("fan"), "he_normal(mode", ConfigError),
    (lambda: init.he_uniform("fan_avg"), "he_uniform(mode", ConfigError),
    (lambda: init.he_normal(gain=0), "he_normal(gain", ConfigError),
    (lambda: init.he_uniform(gain=-1), "he_uniform(gain", ConfigError),
    (lambda: init.glorot_normal("x"), "glorot_normal(gain", ConfigError),
    (lambda: init.glorot_uniform(math.nan), "glorot_uniform(gain", ConfigError),
    (lambda: init.orthogonal(0), "orthogonal(gain", ConfigError),
    (lambda: init.gain("step"), "gain(nonlinearity", ConfigError),
    (lambda: init.dirac(0), "dirac(groups", ConfigError),
    (lambda: init.uniform_fan_in(0), "uniform_fan_in(fan_in", ConfigError),
    (lambda: init.get_initializer("he"), "initializer", ConfigError),
    (lambda: init.get_initializer(3), "initializer", ConfigError),
    (lambda: init.get_initializer(["zeros"]), "initializer", ConfigError),
    (lambda: draw("he_normal", (7,)), "he_normal", ShapeError),
    (lambda: draw("torch_default", (7,)), "torch_default", ShapeError),
    (lambda: draw("glorot_uniform", (7,)), "glorot_uniform", ShapeError),
    (lambda: draw("orthogonal", (7,)), "orthogonal", ShapeError),
    (lambda: draw("dirac", (7, 7)), "dirac", ShapeError),
    (lambda: draw(init.dirac(2), (3, 3, 2, 7)), "dirac(groups=2): expected a multiple of 2 outputs", ShapeError),
])  # fmt: skip
def test_bad_arguments_name_the_function_and_the_argument(make, named, error):
    with pytest.raises(CorenetError) as caught:
        make()
    assert type(caught.value) is error
    assert str(caught.value).startswith(named) and "expected" in str(caught.value) and "got" in str(caught.value)
