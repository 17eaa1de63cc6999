"""Every nest agrees with its NumPy definition in float64, serial and parallel, and touches nothing else."""

import inspect
import pkgutil
from importlib import import_module

import numpy as np
import pytest
from kernel_cases import Case, all_cases

import corenet.kernels
from corenet.kernels.backend import numba_problem
from corenet.kernels.operation import Operation

needs_numba = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
CASES = all_cases()


def cast(value, dtype):
    # Metrics, hyper-parameters and double sums stay double in training, too: (2,), (4,), (7,) vectors of the contract.
    return value.astype(dtype) if isinstance(value, np.ndarray) and value.dtype == np.float64 else value


DOUBLE = {"cross_entropy.forward_backward": [5], "update.sgd": [7], "update.adam": [9], "tree.sum_in_order": [1, 2]}


def arguments(case: Case, dtype):
    doubles = DOUBLE.get(case.operation.name, [])
    args = [a.copy() if i in doubles else cast(a, dtype) for i, a in enumerate(case.args)]
    args = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    for i in (*case.outputs, *case.scratch):
        args[i].fill(np.nan if args[i].dtype.kind == "f" else 255 if args[i].dtype == np.uint8 else -7)
    return args


def compare(case: Case, got, expected, n):
    for i in case.outputs:
        a, b = got[i], expected[i]
        if case.per_sample:
            beyond = a[n:]
            untouched = np.isnan(beyond) if a.dtype.kind == "f" else (beyond == 255) | (beyond == -7)
            assert untouched.all(), f"output {i} was written beyond sample {n}"
            a, b = a[:n], b[:n]
        assert (np.isnan(a) == np.isnan(b)).all() if a.dtype.kind == "f" else (a == b).all(), f"output {i}"
        if a.dtype.kind == "f" and b.size:
            size = np.nanmax(np.abs(b), initial=1e-3)
            bound = 4 * np.sqrt(case.terms + 4) * np.finfo(np.float32).eps * size
            assert np.nanmax(np.abs(a - b), initial=0) <= bound, f"output {i}"


@needs_numba
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.operation.name} {case.label}".strip())
def test_nest_agrees_with_definition(case, threads):
    from corenet.kernels.numba_backend import compile_for

    expected = arguments(case, np.float64)
    case.operation.reference(*expected)
    got = arguments(case, np.float32)
    compile_for(case.operation, tuple(got), parallel=threads > 1)(*got)
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
