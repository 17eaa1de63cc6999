"""The C library as Python sees it: flush-to-zero per thread, death with the parent, and life without the library."""

import os
import platform
import subprocess
import sys
import threading

import numpy as np
import pytest

from corenet.kernels import native

needs_c = pytest.mark.skipif(not native.available, reason=native.reason)
has_switch = platform.machine().lower() in ("x86_64", "amd64", "aarch64", "arm64")


def denormal_product() -> float:
    """1e-20 × 1e-20 in float32: 1e-40 is a denormal number, 0 when flushed."""
    return float(np.full(64, 1e-20, np.float32) @ np.eye(64, dtype=np.float32)[0] * np.float32(1e-20))


@pytest.fixture
def restored():
    yield
    native.set_flush_to_zero(False)


@needs_c
@pytest.mark.skipif(not has_switch, reason="this processor has no such switch")
def test_flush_to_zero_is_off_until_switched_on(restored):
    tiny, denormal = np.full(32, 1e-20, np.float32), np.full(32, 1e-40, np.float32)
    for on in (False, True, True, False):
        native.set_flush_to_zero(on)
        assert native.flush_to_zero() is on
        assert ((tiny * tiny == 0) == on).all()  # a denormal result
        assert ((denormal * np.float32(1e20) == 0) == on).all()  # a denormal operand


@needs_c
@pytest.mark.skipif(not has_switch, reason="this processor has no such switch")
def test_flush_to_zero_holds_for_one_thread_only(restored):
    seen = []

    def other():
        seen.append(native.flush_to_zero())
        native.set_flush_to_zero(True)
        seen.append(native.flush_to_zero())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [False, True]
    assert not native.flush_to_zero()


def test_importing_corenet_changes_nothing_in_the_process():
    code = """
import os, numpy as np
before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
from corenet.kernels import native
import corenet.parallel.barrier, corenet.parallel.topology, corenet.parallel.memory, corenet.parallel.channel
assert before is None or os.sched_getaffinity(0) == before
assert not native.flush_to_zero()
tiny = np.full(8, 1e-20, np.float32)
assert (tiny * tiny > 0).all()
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_without_the_library_everything_is_harmless():
    """What a machine without a C compiler gets: the import fails, and says why."""
    code = """
import sys
sys.modules["corenet._native"] = None
from corenet.kernels import native
assert not native.available and native.lib is None and native.library is None
assert native.reason.startswith("no C library: "), native.reason
native.set_flush_to_zero(True)
assert native.flush_to_zero() is False
import numpy as np
from corenet.parallel.barrier import PipeControl, create_barrier
assert isinstance(create_barrier(2, np.zeros(48, np.uint32)), PipeControl)
print(native.reason)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@needs_c
def test_the_reason_names_the_compiler():
    assert native.reason.startswith("built from csrc/ with ")
    assert native.library and os.path.exists(native.library)
