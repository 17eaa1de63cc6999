"""Every nest agrees with its NumPy definition in float64, serial and parallel, and touches nothing else."""

import inspect
import pkgutil
from importlib import import_module

import numpy as np
import pytest
from guarded import pattern, run_guarded
from kernel_cases import Case, all_cases
from kernel_cases_training import DOUBLE as DOUBLE_IN_TRAINING

import corenet.kernels
from corenet.kernels import pool, pooled_conv
from corenet.kernels.backend import bf16_problem, numba_problem
from corenet.kernels.operation import Operation

needs_numba = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
CASES = all_cases()


# Metrics, hyper-parameters, the batch's sums and matrices that a plan has fixed stay double in training, too.
DOUBLE = {
    "update.sgd": [7],
    "update.adam": [9],
    "tree.sum_in_order": [1, 2],
    "resize.resample": [3, 5],
}
DOUBLE |= DOUBLE_IN_TRAINING


def arguments(case: Case, dtype):
    """The case's arguments as a kernel of that float type gets them, with the values that float32 can hold."""
    doubles = DOUBLE.get(case.operation.name, [])
    return [a if i in doubles else cast(cast(a, np.float32), dtype) for i, a in enumerate(case.args)]


def cast(value, dtype):
    floats = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return value.astype(dtype) if floats else value


def run(function, case: Case, args: list) -> list:
    written = [*case.outputs, *case.scratch, *case.updated, *case.used_up]
    return run_guarded(function, args, written, filled=[*case.outputs, *case.scratch])


def compare(case: Case, got, expected, n):
    for i in (*case.outputs, *case.updated):
        a, b = got[i], expected[i]
        if case.per_sample:
            unwritten = a[n:].reshape(-1).view(np.uint8)
            assert (unwritten == pattern(a.dtype)).all(), f"output {i} was written beyond sample {n}"
            a, b = a[:n], b[:n]
        if a.dtype.kind != "f":
            assert (a == b).all(), f"output {i}"
        elif b.size:
            finite = np.isfinite(b)
            assert np.array_equal(a[~finite], b[~finite], equal_nan=True), f"output {i}"
            size = np.max(np.abs(b[finite]), initial=1e-3)
            bound = 2 * np.sqrt(case.terms + 4) * np.finfo(np.float32).eps * size
            assert (np.abs(a[finite] - b[finite]) <= bound).all(), f"output {i}"


@needs_numba
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.operation.name} {case.label}".strip())
def test_nest_agrees_with_definition(case, threads):
    from corenet.kernels.numba_backend import compile_for

    if case.operation.name.startswith("bf16") and bf16_problem():
        pytest.skip(f"no bfloat16 here: {bf16_problem()}")
    args = arguments(case, np.float32)
    compiled = compile_for(case.operation, tuple(args), parallel=threads > 1)
    got = run(compiled, case, args)
    expected = run(case.operation.reference, case, arguments(case, np.float64))
    compare(case, got, expected, case.args[0])


def elements(case: Case) -> int:
    return sum(a.size for a in case.args if isinstance(a, np.ndarray))


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if elements(case) < 3000],
    ids=lambda case: f"{case.operation.name} {case.label}".strip(),
)
def test_nest_runs_as_plain_python(case):
    """The same loops without a compiler, where they are small: what can be stepped through is what is compiled."""
    args = arguments(case, np.float32)
    with np.errstate(all="ignore"):
        got = run(case.operation.loops, case, args)
        expected = run(case.operation.reference, case, arguments(case, np.float64))
    compare(case, got, expected, case.args[0])


def operations() -> dict[str, Operation]:
    found = {}
    for module in pkgutil.iter_modules(corenet.kernels.__path__):
        if module.name in ("numba_backend", "native"):
            continue
        for value in vars(import_module(f"corenet.kernels.{module.name}")).values():
            if isinstance(value, Operation):
                found[value.name] = value
    return found


def test_every_operation_has_cases_and_a_nest():
    assert set(operations()) == {case.operation.name for case in CASES}
    for op in operations().values():
        assert op.loops is not None and op.__doc__
        assert list(inspect.signature(op.loops).parameters) == list(inspect.signature(op.reference).parameters)


@needs_numba
@pytest.mark.parametrize("channels", [5, 12, 16, 19])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_the_first_nan_of_a_window_wins_whatever_comes_after(channels, dtype):
    """As in the definition, so that a run that has gone wrong shows it; and of equals the first wins."""
    x = np.random.default_rng(0).integers(-2, 3, (2, 1, 9, 9, channels)).astype(np.float32)
    x[x == 1], x[x == -1] = np.nan, -np.inf
    compare_winners(pool.max_forward, (x,), channels, dtype, ((1, 3, 3), (1, 2, 2), (0, 0, 0)))


@needs_numba
def test_code_for_float32_is_not_made_for_other_numbers():
    """It would read their bytes as float32."""
    import numba

    from corenet.kernels.numba_backend import compile_for

    x, y, which = np.zeros((1, 1, 4, 4, 3)), np.zeros((1, 1, 2, 2, 3)), np.zeros((1, 1, 2, 2, 3), np.uint8)
    with pytest.raises(numba.TypingError):
        compile_for(pool.max_forward, (1, x, y, which, (1, 2, 2), (1, 2, 2), (0, 0, 0)), parallel=False)


@needs_numba
@pytest.mark.parametrize("channels", [5, 16, 27])
@pytest.mark.parametrize("width", [9, 17])  # the latter has neighbours
@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_so_it_does_in_a_convolution_with_its_pool(channels, width, dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (2, 1, 9, width, 1)).astype(np.float32)
    x[x == 1] = np.nan
    w = rng.integers(1, 3, (1, 1, 1, 1, channels)).astype(np.float32)
    compare_winners(pooled_conv.forward, (x, w, w[0, 0, 0, 0]), channels, dtype, ((1, 1, 1),))


def compare_winners(op, operands, channels, dtype, how):
    """The definition and the nest: the same numbers and places."""
    from corenet.kernels.numba_backend import compile_for

    results = []
    for compiled in (False, True):
        shape = (2, 1, 4, operands[0].shape[3] // 2, channels)
        y, which = np.zeros(shape, np.float32), np.zeros(shape, dtype)
        args = 2, *operands, y, which, *how
        (compile_for(op, args, parallel=False) if compiled else op)(*args)
        results.append((y, which))
    assert 0 < np.isnan(results[0][0]).sum() < results[0][0].size
    for expected, got in zip(*results, strict=True):
        np.testing.assert_array_equal(got, expected)
