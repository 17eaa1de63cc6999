"""Workers and all their threads count denormal numbers as 0; the process that has started them does not.

What they cost otherwise is in bench/denormals.py.
"""

import threading

import numpy as np
import pytest
from nets import Chunk
from test_native import has_switch, needs_c

from corenet.datasets import from_arrays
from corenet.engine import make_plan
from corenet.kernels import native
from corenet.kernels.backend import numba_problem, select
from corenet.nn import Flatten, LeakyReLU, Linear, Sequential

pytestmark = [needs_c, pytest.mark.skipif(not has_switch, reason="this processor has no such switch")]
KERNELS = [
    pytest.param("numba", marks=pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")),
    "numpy",
]

# −1e-40 · 1e38 is −0.01, if the first number is not 0.
NET = Sequential(Flatten(), LeakyReLU(negative_slope=1e38), Linear(1, 2))
SAMPLES = 128  # for each of two threads of each of two workers, in chunks of 32
TINY, ZERO = (np.full((SAMPLES, 1, 1, 1), value, np.float32) for value in (-1e-40, 0))


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_workers_and_their_threads_flush_denormals(trainer, kernels, threads):
    made = trainer(NET, workers=2, threads=threads, kernels=kernels)
    tiny, zero = (made.predict(from_arrays(x, np.zeros(SAMPLES, int), mean=0.0, std=1.0)) for x in (TINY, ZERO))
    np.testing.assert_array_equal(tiny, zero)
    assert not native.flush_to_zero()  # in this process, which has started them


@pytest.mark.parametrize("kernels", KERNELS)
def test_this_process_and_its_threads_do_not(kernels):
    """The same net here: denormals are numbers, which also shows that the test above sees the difference."""

    def differing(outputs):
        for x in (TINY, ZERO):
            chunk = Chunk(make_plan(NET, (1, 1, 1), SAMPLES), select(kernels))
            chunk.run(x, np.zeros(SAMPLES, int))
            outputs.append(chunk.output.copy())

    here: list[np.ndarray] = []
    elsewhere: list[np.ndarray] = []
    differing(here)
    thread = threading.Thread(target=differing, args=(elsewhere,))
    thread.start()
    thread.join()
    for tiny, zero in (here, elsewhere):
        assert (np.abs(tiny - zero).max(axis=1) > 1e-3).all()
