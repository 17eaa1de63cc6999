"""What an installed corenet brings along, and what it must not: OpenMP, fast-math, another machine's instructions."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

from corenet.kernels import native

ROOT = Path(__file__).parent.parent
needs_c = pytest.mark.skipif(not native.available, reason=native.reason)
needs_sources = pytest.mark.skipif(not (ROOT / "csrc").is_dir(), reason="needs the source tree")


def needed_libraries(path: str) -> list[str]:
    """The shared libraries that an ELF file names (its NEEDED entries), read without any tool."""
    data = Path(path).read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        pytest.skip("not a 64-bit little-endian ELF file")

    def number(offset: int, size: int = 8) -> int:
        return int.from_bytes(data[offset : offset + size], "little")

    # Section headers of 64 bytes: type at 4, offset at 24, size at 32, link at 40.
    start, count = number(40), number(60, 2)
    sections = [start + 64 * i for i in range(count)]
    dynamic = next(section for section in sections if number(section + 4, 4) == 6)  # SHT_DYNAMIC
    strings = number(sections[number(dynamic + 40, 4)] + 24)
    entries = range(number(dynamic + 24), number(dynamic + 24) + number(dynamic + 32), 16)
    names = [strings + number(entry + 8) for entry in entries if number(entry) == 1]  # DT_NEEDED
    return [data[name : data.index(b"\0", name)].decode() for name in names]


@needs_c
def test_the_library_links_no_openmp():
    needed = needed_libraries(native.library or "")
    assert any("libc." in name for name in needed)  # the reader works
    assert not [name for name in needed if re.search("gomp|iomp|libomp|tbb|blas|mkl", name)]


@needs_c
def test_loading_the_library_leaves_denormals_alone():
    """A library linked with fast-math switches them off for the thread that loads it."""
    code = "import numpy as np, corenet._native; t = np.full(8, 1e-20, np.float32); assert (t * t > 0).all()"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@needs_sources
def test_the_build_asks_for_no_forbidden_option():
    sys.path.insert(0, str(ROOT / "csrc"))
    try:
        import build_native
    finally:
        sys.path.pop(0)
    options = build_native.ffi._assigned_source[3]
    assert "-std=c11" in options["extra_compile_args"]
    assert options["optional"]  # no compiler, no extension, but an installation all the same
    for text in options["extra_compile_args"] + options.get("extra_link_args", []):
        assert not re.search("fast-?math|Ofast|march|mtune|mcpu|openmp", text)


@needs_sources
def test_no_source_asks_for_them_either():
    for path in [*ROOT.glob("csrc/**/*.[ch]"), *ROOT.glob("csrc/*.inc"), ROOT / "setup.py"]:
        assert not re.search(r"fast-?math|pragma\s+omp|omp\.h|Ofast|march=native", path.read_text()), path


@needs_sources
def test_every_source_has_a_header_that_python_sees():
    for header in ROOT.glob("csrc/*.h"):
        for name in re.findall(r"\b(corenet_\w+)\(", header.read_text()):
            assert not native.available or hasattr(native.lib, name), f"{name}: install again (pip install -e .)"


def test_the_package_knows_its_version_and_its_command():
    import corenet

    assert importlib.metadata.version("corenet") == corenet.__version__
    scripts = importlib.metadata.entry_points(group="console_scripts")
    assert [script.value for script in scripts if script.name == "corenet"] == ["corenet.cli:main"]
