"""Build `corenet._native` from csrc/*.c with cffi: `setup.py` imports `ffi` from here when corenet is installed.

Every csrc/*.h is a public interface, in the plain C that cffi can read: lines that start with # are for the C
compiler, the rest is declared to Python as it stands. So a function is declared once. To add one, add a .c and a .h.
A .inc is text that a .c includes more than once.

The extension is optional: without a C compiler the installation succeeds and corenet runs on its Numba and NumPy
kernels (`corenet info` says so). Options that must never appear here: fast-math, which as a side effect of loading the
library switches denormals off for the whole process, and march=native, since the build may run on another machine.
"""

from pathlib import Path

from cffi import FFI

# Relative to the project's root, where setup.py runs and where setuptools wants its sources.
FOLDER = Path(__file__).parent.name
HERE = Path(__file__).parent


def declarations(header: Path) -> str:
    """The text of a header without its preprocessor lines."""
    return "\n".join(line for line in header.read_text().splitlines() if not line.startswith("#"))


headers = sorted(HERE.glob("*.h"))

ffi = FFI()
for header in headers:
    ffi.cdef(declarations(header))
ffi.set_source(
    "corenet._native",
    "\n".join(f'#include "{header.name}"' for header in headers),
    sources=[f"{FOLDER}/{source.name}" for source in sorted(HERE.glob("*.c"))],
    depends=[f"{FOLDER}/{included.name}" for included in [*headers, *sorted(HERE.glob("*.inc"))]],
    include_dirs=[FOLDER],
    extra_compile_args=["-std=c11", "-O3", "-ffp-contract=fast"],
    optional=True,
)
