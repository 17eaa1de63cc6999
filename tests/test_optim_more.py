"""AdamW, RMSprop, Adagrad, Adadelta against PyTorch and by hand; descriptions and mistakes of all optimizers."""

import json

import numpy as np
import pytest

from corenet import optim
from corenet.engine import Call
from corenet.errors import ConfigError
from corenet.kernels import update
from corenet.kernels.backend import numba_problem, select

needs_numba = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
KERNELS = [pytest.param("numba", "float32", marks=needs_numba), ("numpy", "float64")]
EPS = {"float32": float(np.finfo(np.float32).eps), "float64": float(np.finfo(np.float64).eps)}

ELEMENTWISE = [
    "AdamW",
    "AdamW(lr=0.02, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.3)",
    "RMSprop",
    "RMSprop(lr=0.03, alpha=0.9, eps=1e-3, weight_decay=0.1, momentum=0.8)",
    "RMSprop(centered=True)",
    "RMSprop(lr=0.03, alpha=0.8, eps=1e-2, weight_decay=0.1, momentum=0.8, centered=True)",
    "Adagrad",
    "Adagrad(lr=0.1, lr_decay=0.2, weight_decay=0.1, initial_accumulator_value=0.2, eps=1e-3)",
    "Adadelta",
    "Adadelta(lr=0.5, rho=0.7, eps=1e-3, weight_decay=0.1)",
]


def make(module, text, *first):
    """The optimizer that a text such as "AdamW(lr=0.1)" names, of that module."""
    name, _, arguments = text.partition("(")
    return getattr(module, name)(*first, **eval(f"dict({arguments or ')'}"))


@pytest.mark.parametrize("kernels, dtype", KERNELS)
@pytest.mark.parametrize("scale", [0, 1])
@pytest.mark.parametrize("text", ELEMENTWISE)
def test_pytorch_step_by_step(text, scale, kernels, dtype):
    """Twenty steps over gradients of all sizes; from 0 on, it is the movement that is compared."""
    torch = pytest.importorskip("torch")
    rng, size, ours = np.random.default_rng(0), 50, make(optim, text)
    start = scale * rng.standard_normal(size).astype(dtype)
    state = np.stack([start, np.full(size, np.nan, dtype)])
    slots, gradient, hyper = np.zeros((2, ours.slots, size), dtype), np.zeros(size, dtype), np.zeros(ours.hyper_size)
    calls = []
    for copy in (0, 1):
        kept = [slots[which, slot] for slot in range(ours.slots) for which in (copy, 1 - copy)]
        calls.append(Call(ours.operation, size, state[copy], state[1 - copy], gradient, *kept, hyper))
        calls[copy].link(select(kernels))
    parameter = torch.from_numpy(start.astype(np.float64)).requires_grad_()
    theirs = make(torch.optim, text, [parameter])
    sizes = 10.0 ** rng.integers(-4, 2, size)
    for step in range(20):
        gradient[:] = np.where(rng.random(size) < 0.1, 0, rng.standard_normal(size) * sizes)
        ours.fill_hyper(hyper, step, ours.lr.rate(step / 7))
        calls[step & 1](0)
        parameter.grad = torch.from_numpy(gradient.astype(np.float64))
        theirs.step()
        exact = parameter.detach().numpy()
        moved = np.abs(exact - start).max() + np.abs(start)
        bound = 4 * np.sqrt(step + 4) * EPS[dtype] * moved
        assert (np.abs(state[1 - (step & 1)] - exact) <= bound).all(), step


def one_step(optimizer, weight, gradient, kept=(), step=0):
    """The new weights and the new numbers of one parameter, by the definition in double."""
    old, new, hyper = np.array([weight]), np.zeros(1), np.zeros(optimizer.hyper_size)
    slots = [np.array([float(value)]) for value in (kept or (0,) * optimizer.slots)]
    written = [np.zeros(1) for _ in slots]
    both = [array for pair in zip(slots, written, strict=True) for array in pair]
    optimizer.fill_hyper(hyper, step, optimizer.lr.rate(0))
    optimizer.operation(0, 1, old, new, np.array([gradient]), *both, hyper)
    return [float(array[0]) for array in (new, *written)]


def test_steps_by_hand():
    adamw = optim.AdamW(0.5, betas=(0.5, 0.75), eps=1e-300, weight_decay=0.25)
    # mean 0.5·2 = 1, corrected 2; square 0.25·4 = 1, corrected 4; step 0.5·2/2; decay 0.5·0.25·8 = 1
    assert one_step(adamw, 8.0, 2.0) == pytest.approx([6.5, 1, 1])
    rmsprop = optim.RMSprop(0.5, alpha=0.75, eps=1.0, momentum=0.5)
    assert one_step(rmsprop, 8.0, 4.0, (16.0, 3.0)) == pytest.approx([8 - 0.5 * (1.5 + 4 / 5), 16, 1.5 + 4 / 5])
    centered = optim.RMSprop(0.5, alpha=0.75, eps=1.0, centered=True)
    # square 12 + 4 = 16, mean 0 + 1 = 1
    assert one_step(centered, 8.0, 4.0, (16.0, 0, 0.0)) == pytest.approx(
        [8 - 2 / (15**0.5 + 1), 16, 4 / (15**0.5 + 1), 1]
    )
    adagrad = optim.Adagrad(0.5, lr_decay=0.5, eps=1.0, initial_accumulator_value=4.0)
    assert one_step(adagrad, 8.0, 3.0, (12.0,), step=2) == pytest.approx([8 - 0.25 * 3 / 6, 21])
    adadelta = optim.Adadelta(0.5, rho=0.75, eps=1.0)
    # square 0.75·4 + 0.25·48 = 15, change √(8+1)/√(15+1)·√48
    change = 0.75 * 48**0.5
    assert one_step(adadelta, 8.0, 48**0.5, (4.0, 8.0)) == pytest.approx([8 - change / 2, 15, 6 + change**2 / 4])


def test_centered_variance_below_zero_by_rounding_counts_as_zero():
    new, *_ = one_step(optim.RMSprop(1.0, alpha=0.0, eps=0.5, centered=True), 1.0, 0.1)
    assert new == pytest.approx(1 - 0.1 / 0.5, rel=1e-6)
    assert np.isfinite(one_step(optim.RMSprop(1.0, alpha=0.0, centered=True), 1.0, 0.3)).all()


@pytest.mark.parametrize(
    "optimizer",
    [
        *(make(optim, text) for text in ELEMENTWISE),
        optim.LARS(0.3, 0.8, 0.1, 0.02, 1e-3),
        optim.LARS(0.3, momentum=0.0),
        optim.LAMB(optim.Step(0.03, 1), eps=1e-3),
    ],
)
def test_description_through_json(optimizer):
    again = optim.build(json.loads(json.dumps(optim.describe(optimizer))))
    assert type(again) is type(optimizer)
    assert json.dumps(optim.describe(again)) == json.dumps(optim.describe(optimizer))
    assert (again.slots, again.operation) == (optimizer.slots, optimizer.operation)


def test_defaults_are_pytorchs():
    torch = pytest.importorskip("torch")
    for name in ("AdamW", "RMSprop", "Adagrad", "Adadelta"):
        theirs = make(torch.optim, name, [torch.nn.Parameter(torch.zeros(1))]).defaults
        for key, value in optim.describe(make(optim, name)).items():
            if key == "lr":
                assert value == {"type": "Constant", "lr": theirs["lr"]}
            elif key != "type":
                assert value == theirs[key], (name, key)


@pytest.mark.parametrize("text, named", [
    ("AdamW(lr=0)", "AdamW(lr"),
    ("AdamW(betas=0.9)", "AdamW(betas"),
    ("AdamW(betas=(0.9, 1.0))", "AdamW(betas"),
    ("AdamW(betas=(-0.1, 0.9))", "AdamW(betas[0]"),
    ("AdamW(eps=0)", "AdamW(eps"),
    ("AdamW(weight_decay=-1)", "AdamW(weight_decay"),
    ("RMSprop(lr='fast')", "RMSprop(lr"),
    ("RMSprop(alpha=1)", "RMSprop(alpha"),
    ("RMSprop(eps=-1)", "RMSprop(eps"),
    ("RMSprop(weight_decay=-1)", "RMSprop(weight_decay"),
    ("RMSprop(momentum=-1)", "RMSprop(momentum"),
    ("Adagrad(lr=-1)", "Adagrad(lr"),
    ("Adagrad(lr_decay=-1)", "Adagrad(lr_decay"),
    ("Adagrad(weight_decay=None)", "Adagrad(weight_decay"),
    ("Adagrad(initial_accumulator_value=-1)", "Adagrad(initial_accumulator_value"),
    ("Adagrad(eps=0)", "Adagrad(eps"),
    ("Adadelta(lr=0)", "Adadelta(lr"),
    ("Adadelta(rho=1.0)", "Adadelta(rho"),
    ("Adadelta(rho=True)", "Adadelta(rho"),
    ("Adadelta(eps=0)", "Adadelta(eps"),
    ("Adadelta(weight_decay=-1)", "Adadelta(weight_decay"),
    ("LARS(lr=0)", "LARS(lr"),
    ("LARS(lr=1, momentum=-1)", "LARS(momentum"),
    ("LARS(lr=1, weight_decay=-1)", "LARS(weight_decay"),
    ("LARS(lr=1, trust_coefficient=0)", "LARS(trust_coefficient"),
    ("LARS(lr=1, eps=-1)", "LARS(eps"),
    ("LAMB(lr=0)", "LAMB(lr"),
    ("LAMB(betas=(0.9,))", "LAMB(betas"),
    ("LAMB(betas=(0.9, 2))", "LAMB(betas"),
    ("LAMB(eps=0)", "LAMB(eps"),
    ("LAMB(weight_decay=-1)", "LAMB(weight_decay"),
])  # fmt: skip
def test_bad_arguments_name_the_class_and_the_argument(text, named):
    with pytest.raises(ConfigError) as caught:
        make(optim, text)
    assert str(caught.value).startswith(named) and "expected" in str(caught.value) and "got" in str(caught.value)


def test_adamw_decays_what_adam_does_not_see():
    """Of a large decay and no gradient, Adam makes steps of the rate, AdamW shrinks by rate · decay."""
    assert one_step(optim.AdamW(0.1, weight_decay=0.5), 2.0, 0.0)[0] == pytest.approx(2.0 * 0.95)
    assert one_step(optim.Adam(0.1, weight_decay=0.5), 2.0, 0.0)[0] == pytest.approx(1.9)
    assert optim.AdamW().operation is update.adamw
