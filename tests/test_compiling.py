"""Who compiles what: every kernel once, families together, the same for all."""

from itertools import chain

import numpy as np
import pytest

from corenet.engine import Call
from corenet.kernels import conv, elementwise, pool, winograd_4x3
from corenet.parallel.compiling import deal

X = np.zeros((1, 1, 8, 8, 16), np.float32)
DOUBLE = X.astype(np.float64)


def calls():
    operations = elementwise.relu_forward, conv.forward, winograd_4x3.forward, winograd_4x3.backward_weights
    many = [Call(operation, X, X) for operation in operations]
    return [*many, Call(pool.max_forward, X, (1, 2, 2)), Call(pool.max_forward, DOUBLE, (1, 2, 2)), *many]


def names(share):
    return [(call.operation.name, call.args[0].dtype.char) for call in share]


@pytest.mark.parametrize("workers", [1, 2, 3, 9])
def test_every_kernel_is_compiled_once(workers):
    shares = deal(calls(), workers)
    assert len(shares) == workers
    dealt = list(chain(*map(names, shares)))
    assert len(dealt) == len(set(dealt)) and set(dealt) == set(names(calls()))


def test_families_stay_together_and_the_longest_has_a_worker_of_its_own():
    first, second = (names(share) for share in deal(calls(), 2))
    assert {name for name, _ in first} == {"winograd_4x3.forward", "winograd_4x3.backward_weights"}
    assert ("conv.forward", "f") in second and ("pool.max_forward", "d") in second


def test_functions_of_user_layers_have_nothing_to_compile_and_are_dealt_too():
    (share,) = deal([Call(print, X)], 1)
    assert [call.operation for call in share] == [print]
