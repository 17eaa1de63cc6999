"""The tile at the heights, and with the vectors, of other machines: each compiled anew in a process of its own.

A height decides only how many rows are computed together. Every element is the same chain of fused multiply-adds, so
all machines that have these give the same bits, and no height may write past the rows and columns there are.
"""

import json
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corenet.kernels.backend import numba_problem
from corenet.kernels.tile import rows_for

pytestmark = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")

WORKER = str(Path(__file__).with_name("tile_worker.py"))
MACHINES = {  # name: (rows, what Numba is told about the CPU)
    "2 rows": (2, {}),
    "5 rows": (5, {}),
    "6 rows": (6, {}),
    "8 rows": (8, {}),
    "AVX2": (None, {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma"}),
    "baseline": (None, {"NUMBA_CPU_NAME": "generic"}),
}


def host_has(*features: str) -> bool:
    import llvmlite.binding

    return all(llvmlite.binding.get_host_cpu_features().get(name, False) for name in features)


def machines() -> list[str]:
    """Those that this one can be; AVX2 code is five rows high, so that height is compiled once."""
    avx2 = platform.machine() in ("x86_64", "AMD64") and host_has("avx2", "fma")
    return [name for name in MACHINES if name != ("5 rows" if avx2 else "AVX2")]


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    def report(name: str) -> dict:
        rows, settings = MACHINES[name]
        cache = tmp_path_factory.mktemp("cache")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
        command = [sys.executable, "-W", "error", WORKER, *([str(rows)] if rows else [])]
        done = subprocess.run(
            command, env=environment | settings | {"XDG_CACHE_HOME": str(cache)}, capture_output=True, text=True
        )
        assert done.returncode == 0 and not done.stderr, f"{name}: {done.stderr}"
        return json.loads(done.stdout)

    names = machines()
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(report, names), strict=True))


def test_every_height_agrees_with_the_definition(reports):
    assert all(report["checked"] > 40 for report in reports.values())
    assert {report["rows"] for report in reports.values()} == {2, 5, 6, 8}
    assert all(reports[f"{rows} rows"]["rows"] == rows for rows in (2, 6, 8))


def test_the_height_leaves_no_trace_in_the_bits(reports):
    assert len({report["sha256"] for name, report in reports.items() if name.endswith("rows")}) == 1


def test_avx2_code_gives_the_bits_of_wider_vectors(reports):
    if "AVX2" not in reports:
        pytest.skip("this CPU has no AVX2")
    assert reports["AVX2"]["rows"] == 5
    assert reports["AVX2"]["vectors"] == ["xmm", "ymm"] and reports["AVX2"]["fused"]
    assert reports["AVX2"]["sha256"] == reports["8 rows"]["sha256"]


def test_baseline_code_needs_nothing_that_an_old_machine_lacks(reports):
    arm = platform.machine() in ("aarch64", "arm64")
    assert reports["baseline"]["rows"] == (6 if arm else 2)
    if platform.machine() in ("x86_64", "AMD64"):
        assert reports["baseline"]["vectors"] == ["xmm"] and not reports["baseline"]["fused"]


@pytest.mark.parametrize(
    "features, arch, rows",
    [
        ("+sse2,+avx,+avx2,+fma,+avx512f", "x86_64", 8),
        ("+sse2,+avx,+avx2,+fma", "x86_64", 5),
        ("+sse2,+avx,+avx2", "x86_64", 2),  # without fused multiply-add
        ("+sse2,+avx", "x86_64", 2),
        ("", "x86_64", 2),
        ("", "aarch64", 6),
        ("+neon", "arm64", 6),
    ],
)
def test_rows_fit_the_registers(features, arch, rows):
    assert rows_for(features, arch) == rows


@pytest.mark.parametrize("machine", ["its own", "AVX2", "baseline"])
def test_convolutions_with_a_pool_are_right_and_stay_within_their_arrays(machine, tmp_path):
    """Their tiles, too, are as high as the machine lets them."""
    if machine == "AVX2" and machine not in machines():
        pytest.skip("this machine has no AVX2")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    environment |= MACHINES.get(machine, (None, {}))[1] | {"XDG_CACHE_HOME": str(tmp_path), "NUMBA_OPT": "1"}
    command = [sys.executable, "-W", "error", WORKER, "pooled"]
    subprocess.run(command, env=environment, check=True)
