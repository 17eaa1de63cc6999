"""precision="bf16": what is rounded and how, that operands only are, the same bits for any crew, and refusals."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import CLASSES, images
from hypothesis import given
from hypothesis import strategies as st

import corenet
from corenet import nn, optim
from corenet.engine import make_plan
from corenet.errors import ConfigError
from corenet.kernels import backend, bf16_conv, bf16_linear
from corenet.kernels.bfloat16 import bits, pair_rows, round_row, rounded, widened
from corenet.nn import CrossEntropy

PROBLEM = backend.bf16_problem()
needs_bf16 = pytest.mark.skipif(PROBLEM is not None, reason=f"no bfloat16 here: {PROBLEM}")
needs_numba = pytest.mark.skipif(backend.numba_problem() is not None, reason="Numba is not installed")


def nearest(pattern: int) -> int:
    """The bits of the bfloat16 nearest to a float32 of that pattern, by distances; no NaN."""
    sign, magnitude = pattern >> 31, pattern & 0x7FFFFFFF
    if magnitude < 0x00800000:
        return sign << 15
    below = magnitude >> 16

    def value(half: int) -> float:
        return 2.0**128 if half == 0x7F80 else float(np.uint32(half << 16).view(np.float32))

    this = float(np.uint32(magnitude).view(np.float32))
    if below == 0x7F80:
        return sign << 15 | below
    to_below, to_above = this - value(below), value(below + 1) - this
    up = to_above < to_below or (to_above == to_below and below % 2)
    return sign << 15 | (below + up)


EDGES = [
    0x00000000, 0x80000000, 0x00000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x0080FFFF,  # zeros, denormals, least
    0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0xBF808000, 0xBF818000,  # ties, and next to them
    0x7F7FFFFF, 0x7F7F8000, 0x7F7F7FFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,  # what rounds to infinity, infinities
]  # fmt: skip


@pytest.mark.parametrize("pattern", EDGES)
def test_edges_are_rounded_to_the_nearest(pattern):
    assert int(bits(np.uint32(pattern).view(np.float32))) == nearest(pattern)


@given(st.integers(0, 2**32 - 1))
def test_every_number_is_rounded_to_the_nearest(pattern):
    x = np.array([pattern], np.uint32).view(np.float32)
    if np.isnan(x[0]):
        assert np.isnan(widened(bits(x)))[0] and bits(x)[0] >> 15 == pattern >> 31
    else:
        assert bits(x)[0] == nearest(pattern)


@pytest.mark.parametrize("pattern", [0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF808000, 0x7FC00000])
def test_nan_stays_nan(pattern):
    x = np.array([pattern], np.uint32).view(np.float32)
    assert np.isnan(rounded(x))[0]


def test_rounding_keeps_shape_and_type_and_does_nothing_twice():
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    for dtype in (np.float32, np.float64):
        once = rounded(x.astype(dtype))
        assert once.dtype == dtype and once.shape == x.shape
        assert (rounded(once) == once).all() and 0 < np.abs(once / x - 1).max() < 2**-8


def compiled(function):
    """The code that takes the function's place in nests, called from a nest of its own."""
    import numba

    from corenet.kernels.numba_backend import _intrinsic

    intrinsic = _intrinsic(function)
    if function is round_row:
        return numba.njit(lambda source, s0, target, t0, count: intrinsic(source, s0, target, t0, count))
    return numba.njit(lambda source, even, odd, target, t0, count: intrinsic(source, even, odd, target, t0, count))


def all_halves() -> np.ndarray:
    """Every upper half of a float32, with lower halves on both sides of each border."""
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    return ((np.arange(2**16, dtype=np.uint32) << np.uint32(16))[:, None] | lower).reshape(-1).view(np.float32)


@needs_bf16
def test_compiled_rounding_is_that_of_the_definition():
    x = all_halves()
    got, expected = np.zeros(x.size, np.uint16), np.zeros(x.size, np.uint16)
    compiled(round_row)(x, 0, got, 0, x.size)
    round_row(x, 0, expected, 0, x.size)
    np.testing.assert_array_equal(got, expected)


@needs_bf16
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 40])
@pytest.mark.parametrize("odd", [-1, 3, 50])
def test_compiled_pairs_are_those_of_the_definition(count, odd):
    x = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    got, expected = np.full(100, 7, np.uint16), np.full(100, 7, np.uint16)
    compiled(pair_rows)(x, 9, odd, got, 5, count)
    pair_rows(x, 9, odd, expected, 5, count)
    np.testing.assert_array_equal(got, expected)
    single = np.full(100, 7, np.uint16)
    compiled(round_row)(x, 9, single, 5, count)
    np.testing.assert_array_equal(single[5 : 5 + count], bits(x[9 : 9 + count]))
    assert (single[5 + count :] == 7).all() and (single[:5] == 7).all()


def run(operation, *args) -> None:
    backend.select("numba").function(operation, args)(*args)


@needs_bf16
def test_products_are_exact_and_sums_are_float32():
    """1·1 + 2⁻¹⁶ needs 17 bits, more than a bfloat16 has; 1 + 2⁻⁹ is no bfloat16."""
    y = np.zeros((1, 1), np.float32)
    work = np.zeros(2, np.uint16)
    run(bf16_linear.forward, 1, np.array([[1, 2**-8]], np.float32), np.array([[1], [2**-8]], np.float32),
        np.zeros(0, np.float32), y, work)  # fmt: skip
    assert y[0, 0] == 1 + 2**-16
    run(bf16_linear.forward, 1, np.array([[1 + 2**-9, 0]], np.float32), np.ones((2, 1), np.float32),
        np.zeros(0, np.float32), y, work)  # fmt: skip
    assert y[0, 0] == 1


@needs_bf16
@pytest.mark.parametrize("size", [3, 4])
def test_what_is_not_finite_stays_where_it_is(size):
    """An odd last step has a partner in memory, which must not be read: infinity · 0 is NaN."""
    one = 1, 1, 1
    x = np.ones((2, 1, 1, size, 1), np.float32)
    x[1], x[0, ..., -1, :] = np.inf, np.inf
    w, none = np.ones((1, 1, 3, 1, 1), np.float32), np.zeros(0, np.float32)
    y = np.zeros((2, 1, 1, size - 2, 1), np.float32)
    work = np.zeros(bf16_conv.forward_work(x.shape, w.shape), np.uint16)
    run(bf16_conv.forward, 2, x, w, none, y, one, one, 1, work)
    assert y[0].reshape(-1).tolist() == [3.0] * (size - 3) + [np.inf] and (y[1] == np.inf).all()
    x[:] = 1
    x[0, 0, 0, size - 2] = np.inf  # the first filter element never meets it, unless an odd pair reads on
    dw, dy = np.zeros_like(w), np.ones_like(y)
    work = np.zeros(bf16_conv.backward_weights_work(x.shape, dy.shape), np.uint16)
    run(bf16_conv.backward_weights, 2, x, dy, dw, one, one, 1, work)
    expected = [sum(x[i, 0, 0, s + q, 0] for i in range(2) for q in range(size - 2)) for s in range(3)]
    assert dw.reshape(-1).tolist() == expected


@needs_bf16
def test_kernels_stay_within_their_arrays():
    worker = str(Path(__file__).with_name("tile_worker.py"))
    done = subprocess.run([sys.executable, "-W", "error", worker, "bf16"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# In a net.

SHAPE = (6, 6, 2)


def net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 18, 2, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(162, 70), nn.ReLU(), nn.Linear(70, CLASSES),
    )  # fmt: skip


def names(**how) -> list[str]:
    plan = make_plan(net(), SHAPE, 4, loss=CrossEntropy(), **how)
    return [step.operation.name for step in (*plan.forward, *plan.backward, *plan.products)]


def test_all_products_of_matrices_are_replaced_and_nothing_else():
    plain, bf16 = names(), names(precision="bf16")
    products = {"conv.forward", "conv.backward_weights", "conv.backward_data",
                "linear.forward", "linear.backward_data", "linear.backward_weights"}  # fmt: skip
    assert products <= set(plain)
    assert bf16 == [f"bf16_{name}" if name in products else name for name in plain]


def test_plans_of_doubles_and_other_convolutions_stay_as_they_are():
    assert names(precision="bf16", dtype="float64") == names(dtype="float64")
    grey = nn.Conv2d(1, 16, 5)
    for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(8, 8, 5, groups=8), grey):
        plans = [make_plan(layer, (8, 8, layer.in_channels), 2, precision=p) for p in ("float32", "bf16")]
        assert [step.operation for step in plans[0].forward] == [step.operation for step in plans[1].forward]


@needs_bf16
def test_the_same_bits_for_any_crew_near_those_of_float32(trainer):
    data = images(61, shape=SHAPE)
    results = {}
    for workers, threads in ((2, 1), (2, 2), (1, 1)):
        made = trainer(net(), optim.SGD(0.05), workers=workers, threads=threads, precision="bf16")
        history = made.fit(data, batch_size=16, epochs=2, callbacks=())
        results[workers, threads] = made.params_sha256(), history["loss"], made.predict(data[0]).tobytes()
    assert len(set(map(str, results.values()))) == 1
    exact = trainer(net(), optim.SGD(0.05))
    loss = exact.fit(data, batch_size=16, epochs=2, callbacks=())["loss"]
    assert exact.params_sha256() != results[1, 1][0]
    np.testing.assert_allclose(results[1, 1][1], loss, rtol=0.02)


@needs_bf16
def test_groups_dilation_and_transposed_convolutions_train(trainer):
    layers = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 4, 3, dilation=(1, 2), groups=2), nn.ReLU(),
        nn.ConvTranspose2d(4, 3, 2, stride=2), nn.Flatten(), nn.Linear(96, CLASSES),
    )  # fmt: skip
    losses = [
        trainer(layers, optim.SGD(0.05), precision=precision).fit(images(61), callbacks=())["loss"][0]
        for precision in ("float32", "bf16")
    ]
    assert losses[0] != losses[1] and losses[0] == pytest.approx(losses[1], rel=0.02)


# What is refused.


def test_unknown_precisions_and_other_kernels_are_refused():
    with pytest.raises(ConfigError, match="precision: expected one of 'float32', 'bf16', got 'fp16'"):
        corenet.Trainer(net(), precision="fp16")
    for kernels in ("numpy", "c"):
        with pytest.raises(ConfigError, match=f"got 'bf16' with kernels='{kernels}'. Use kernels='numba'"):
            corenet.Trainer(net(), precision="bf16", kernels=kernels)


@needs_numba
@pytest.mark.parametrize("machine, chosen, got", [
    ("x86_64", None, "a CPU without it"),
    ("aarch64", None, "an Arm CPU, whose instructions for bfloat16 corenet does not use yet"),
    ("x86_64", "+avx512f", "NUMBA_CPU_FEATURES or NUMBA_CPU_NAME without it"),
])  # fmt: skip
def test_cpus_without_it_are_refused(monkeypatch, machine, chosen, got):
    from corenet.kernels import numba_backend

    monkeypatch.setattr(numba_backend.platform, "machine", lambda: machine)
    monkeypatch.setattr(numba_backend.config, "CPU_FEATURES", chosen)
    if chosen is None:
        monkeypatch.setattr(numba_backend, "cpu_features", lambda: "+avx2,+avx512f")
    with pytest.raises(ConfigError) as error:
        corenet.Trainer(net(), precision="bf16")
    assert str(error.value).startswith(f"precision='bf16': expected AVX512-BF16, for Numba's kernels, got {got}")
    assert "Use precision='float32'" in str(error.value)
    with pytest.raises(LookupError, match="round_row needs AVX512-BF16"):  # LLVM would end the process
        numba_backend._intrinsic(round_row)


def test_without_numba_it_is_refused(monkeypatch):
    monkeypatch.setattr(backend, "numba_problem", lambda: "Numba cannot be imported")
    with pytest.raises(ConfigError, match="got Numba cannot be imported"):
        corenet.Trainer(net(), precision="bf16")
