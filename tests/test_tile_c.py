"""The tiles of the C library: against the definition, to the bits of Numba's, and no instruction where it may not be.

`csrc/tests/tile_check.c` has every shape under the sanitizers; here are guard words, the edges of pages, what was
built, and the kernels that run on these tiles.
"""

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from guarded import run_guarded
from kernel_cases import all_cases
from test_kernels import arguments, compare, needs_numba, run
from tile_calls import Call, c_tile, calls

from corenet.errors import ConfigError
from corenet.kernels import activation, backend, conv, linear, native
from corenet.kernels.tile import LANES, tile

pytestmark = pytest.mark.skipif(not native.available, reason=native.reason)

CSRC = Path(__file__).parent.parent / "csrc"
HERE = native.tiles()
FUSED = [name for name in HERE if name != "baseline"]  # one rounding for each product that is added
X86 = platform.machine().lower() in ("x86_64", "amd64")
each_tile = pytest.mark.parametrize("name", HERE)


def exact(call: Call) -> tuple[np.ndarray, np.ndarray]:
    """The definition's c in float64, and with the absolute value of every number."""
    double = [a.astype(np.float64) if isinstance(a, np.ndarray) and a.dtype == np.float32 else a for a in call.args]
    absolute = [np.abs(a) if isinstance(a, np.ndarray) and a.dtype == np.float64 else a for a in double]
    double[12], absolute[12] = double[12].copy(), absolute[12].copy()
    tile(*double)
    tile(*absolute)
    return double[12], absolute[12]


@each_tile
def test_it_is_what_the_definition_says(name):
    for call in calls(native.tile(name).rows):
        c = run_guarded(c_tile(name, call.near), call.args, written=[12], filled=[])[12]
        expected, absolute = exact(call)
        written = np.isfinite(expected)
        assert (np.isnan(c) == ~written).all()
        assert written.sum() == call.rows * call.args[15]
        bound = 2 * np.sqrt(30) * np.finfo(np.float32).eps * absolute[written]
        assert (np.abs(c - expected)[written] <= bound).all()


@each_tile
def test_it_stays_within_its_arrays(name):
    """Masked reads, too, which only the processor sees."""
    worker = Path(__file__).with_name("tile_calls.py")
    done = subprocess.run([sys.executable, "-W", "error", worker, name], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@each_tile
def test_no_rows_and_values_that_are_not_finite(name):
    rng = np.random.default_rng(0)
    for near in (False, True):
        call = Call(rng, 1, 5, 2, True, near, 3)
        call.args[4] = 0
        before = call.args[12].tobytes()
        c_tile(name, near)(*call.args)
        assert call.args[12].tobytes() == before
    for value in (np.inf, np.nan):
        call = Call(rng, 2, LANES - 1, 1, True, False, 4)
        call.args[9][np.isfinite(call.args[9])] = value
        c_tile(name, False)(*call.args)
        assert not np.isfinite(call.args[12]).any()


@needs_numba
@pytest.mark.parametrize("near", [False, True])
def test_bits_are_those_of_numbas_tile(near):
    """On a CPU that has fused multiply-adds; the number of rows does not matter."""
    import numba

    from corenet.kernels.tile import make_tile, rows_for

    if not FUSED:
        pytest.skip("no tile here rounds once")
    height, inner = 2, make_tile(2, near)
    assert rows_for("", "x86_64") == height

    @numba.njit
    def numbas(a, a0, a_row, m0, rows, a_tap, b_tap, length, a_step, b, b0, b_step, c, c0, c_row, cols, start, start0):
        for m in range(0, rows, height):
            inner(a, a0, a_row, m0 + m, min(height, rows - m), a_tap, b_tap, length, a_step, b, b0, b_step, c, c0,
                  c_row, cols, start, start0)  # fmt: skip

    for call in calls(min(native.tile(name).rows for name in FUSED)):
        if call.near or not near:
            expected, results = call.args[12].copy(), []
            padded = [np.append(a, [a[-1]] * height) if i in (2, 14) else a for i, a in enumerate(call.args)]
            numbas(*padded[:12], expected, *padded[13:])
            for name in FUSED:
                results.append(call.args[12].copy())
                c_tile(name, near)(*call.args[:12], results[-1], *call.args[13:])
            assert {result.tobytes() for result in results} == {expected.tobytes()}


# Which tile.


def test_the_best_tile_is_chosen_and_others_by_name():
    assert HERE and HERE[-1] == "baseline"  # every machine has one
    assert native.tile() == native.tile(HERE[0])
    assert [native.tile(name).name for name in HERE] == HERE
    assert native.tile("") is None and native.tile("avx") is None
    assert len({(native.tile(name).any, native.tile(name).near) for name in HERE}) == len(HERE)


@needs_numba
def test_c_kernels_take_the_best_tile_or_the_named_one():
    assert backend.select("c").c_tile == HERE[0]
    for name in HERE:
        assert backend.select(f"c-{name}").c_tile == name
        assert backend.select(f"c-{name}").reason.endswith(f"on the C tile {name}")
    assert backend.select("numba").c_tile is None and backend.select("auto").c_tile is None


@needs_numba
def test_a_tile_this_cpu_lacks_is_refused_with_those_it_has():
    for name in set(native.TILES) - set(HERE):
        with pytest.raises(ConfigError, match=f"kernels: expected a tile .*'c-{HERE[0]}'.* got 'c-{name}'"):
            backend.select(f"c-{name}")
    with pytest.raises(ConfigError, match="'c-baseline', 'null', got 'c-sse9'"):
        backend.select("c-sse9")


@needs_numba
def test_without_the_library_c_kernels_are_refused(monkeypatch):
    monkeypatch.setattr(native, "available", False)
    with pytest.raises(ConfigError, match=r"expected the C library, got .*kernels='numba'"):
        backend.select("c")


# Kernels on these tiles.

ON_THE_TILE = {"conv", "linear", "winograd"}
KERNELS = [case for case in all_cases() if case.operation.name.split(".")[0] in ON_THE_TILE]


@needs_numba
@pytest.mark.parametrize("case", KERNELS[::3], ids=lambda case: f"{case.operation.name} {case.label}".strip())
def test_kernels_agree_with_the_definition_and_have_numbas_bits(case):
    args = arguments(case, np.float32)
    tiles = HERE if case.operation.name.startswith("conv") else HERE[:1]  # each takes seconds to compile
    results, expected = {}, run(case.operation.reference, case, arguments(case, np.float64))
    for name in ("numba", *(f"c-{one}" for one in tiles)):
        got = run(backend.select(name).function(case.operation, tuple(args)), case, args)
        compare(case, got, expected, case.args[0])
        results[name] = [got[i].tobytes() for i in case.outputs]
    fused = {name: result == results["numba"] for name, result in results.items() if name[2:] in FUSED}
    assert fused == dict.fromkeys(fused, True)


@needs_numba
def test_threads_share_a_c_tile():
    case = next(case for case in KERNELS if case.operation is linear.forward)
    args = arguments(case, np.float32)
    alone, shared = (
        run(backend.select("c", threads).function(case.operation, tuple(args)), case, args) for threads in (1, 2)
    )
    assert [alone[i].tobytes() for i in case.outputs] == [shared[i].tobytes() for i in case.outputs]


@needs_numba
def test_variants_do_not_meet_in_the_cache():
    from corenet.kernels.numba_backend import dispatcher

    variants = [dispatcher(conv.forward, parallel, name) for parallel in (False, True) for name in (None, *HERE)]
    names = [variant.py_func.__name__ for variant in variants]
    assert len(set(names)) == len(names)
    rows = [variant.py_func.__globals__["ROWS"] for variant in variants[1 : 1 + len(HERE)]]
    assert rows == [native.tile(name).rows for name in HERE]
    assert dispatcher(activation.elu_forward, False, "baseline") is dispatcher(activation.elu_forward, False)


# What was built.

VECTOR = re.compile(r"%[yz]mm\d|%k[1-7]\b|\tv(?!err|erw|mcall)[a-z]")


def instructions(path: str) -> dict[str, set[str]]:
    """For each function of a library, its instructions that a CPU without AVX lacks."""
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
    found: dict[str, set[str]] = {}
    for line in listing.stdout.splitlines():
        if head := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            function = head[1]
            found[function] = set()
        elif VECTOR.search(line):
            found[function].add(line.partition("\t")[2].strip())
    return found


@pytest.mark.skipif(shutil.which("objdump") is None or not X86, reason="needs objdump, and AVX to look for")
def test_avx_is_only_where_the_cpu_was_asked():
    found = instructions(native.library)
    if not any(name.startswith("corenet_tile_") for name in found):
        pytest.skip("the library was stripped of its functions' names")
    # The compiler may cut functions in parts, which carry its own endings behind the name.
    dispatched = {name: re.fullmatch(r".*_(avx2|avx512)((\.[a-z]+)+(\.\d+)?)*", name) for name in found}
    assert {name: code for name, code in found.items() if code and not dispatched[name]} == {}
    for name, code in found.items():
        if "_avx2" in name:
            assert not [line for line in code if re.search(r"%zmm|%k\d|%ymm(1[6-9]|[23]\d)", line)], name
    assert any("%zmm" in line and "vfmadd" in line for line in found["corenet_tile_avx512"])
    assert any("%ymm" in line and "vfmadd" in line for line in found["corenet_tile_avx2"])
    assert "corenet_tile_baseline" in found


def compiled(tmp_path: Path, compiler: str, *options: str) -> Path:
    """The driver, compiled; skips where the compiler or its sanitizers are missing."""
    if shutil.which(compiler) is None or not CSRC.is_dir():
        pytest.skip(f"needs {compiler} and the source tree")
    sources = [CSRC / "tests" / "tile_check.c", CSRC / "tile.c"]
    flags = ["-std=c11", "-ffp-contract=fast", *options]

    def build(*what) -> subprocess.CompletedProcess:
        return subprocess.run([compiler, *flags, f"-I{CSRC}", *map(str, what), "-lm"], capture_output=True, text=True)

    empty, program = tmp_path / "empty.c", tmp_path / "program"
    empty.write_text("int main(void) { return 0; }\n")
    if build(empty, "-o", program).returncode:
        pytest.skip(f"{compiler} cannot build with {' '.join(options)}")
    done = build(*sources, "-Wall", "-Wextra", "-Werror", "-o", program)
    assert done.returncode == 0, done.stderr
    return program


SANITIZERS = "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("options", [("-O1", *SANITIZERS), ("-O3",)], ids=["sanitizers", "as it is built"])
def test_every_tile_to_the_bit(tmp_path, compiler, options):
    program = compiled(tmp_path, compiler, *options)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    *hashes, last = done.stdout.split("\n")[:-1]
    assert last == "tile_check: passed"
    hash_of = dict(line.split() for line in hashes)
    assert list(hash_of) == HERE
    assert len({hash_of[name] for name in FUSED}) <= 1


@pytest.mark.skipif(shutil.which("clang") is None or not CSRC.is_dir(), reason="needs clang and the source tree")
@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu"])
def test_other_machines_compile_it_too(tmp_path, target):
    """Without their system's headers; for Arm, multiply-adds of four lanes come out."""
    out = tmp_path / "tile.s"
    options = f"--target={target} -ffreestanding -std=c11 -O3 -ffp-contract=fast -Wall -Wextra -Werror -S".split()
    done = subprocess.run(["clang", *options, CSRC / "tile.c", "-o", out], capture_output=True, text=True)
    if "unable to create target" in done.stderr:
        pytest.skip(f"this clang does not know {target}")
    assert done.returncode == 0, done.stderr
    code = out.read_text()
    assert ("corenet_tile_neon:" in code and "fmla\tv" in code) == ("aarch64" in target)
    assert "corenet_tile_baseline:" in code
