"""corenet info: what was found on this machine, and why things run as they do."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from typing import Any

from .. import __version__
from ..datasets.builtin import BY_NAME, DEBIAN_FOLDER
from ..datasets.idx import find_split
from ..errors import FileError
from ..kernels import backend, native
from ..kernels.tile import LANES
from ..parallel.topology import plan_layout, usable_cpus
from ..report.machine import cpu_model
from .output import print_json

LIBRARIES = ("numpy", "numba", "llvmlite", "cffi", "safetensors", "psutil", "rich", "typer")
FEATURES = ("avx512f", "avx2", "fma", "avx", "sse4.2", "sve", "neon", "asimd")  # those a tile's size or speed rests on
FOR_DEVELOPERS = ("test", "dev")


def info(*, json: bool) -> None:
    """Print what was found."""
    found = collect()
    if json:
        print_json(found)
    else:
        for name, lines in describe(found):
            for number, line in enumerate(lines):
                print(f"{'' if number else name:11}{line}")


def collect() -> dict[str, Any]:
    """Everything, as data."""
    chosen = backend.select()
    return {
        "corenet": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "libraries": {name: _version(name) for name in LIBRARIES},
        "cpu": cpu_model(),
        "cores": usable_cpus(),
        "layout": plan_layout("auto").reason,
        "kernels": chosen.reason,
        "bf16": backend.bf16_problem(),
        "c_library": native.reason,
        "c_tiles": [{"name": tile.name, "rows": tile.rows} for tile in map(native.tile, native.tiles()) if tile],
        **_compiler(chosen.name),
        "blas": _blas(),
        "extras": _extras(),
        "datasets": _datasets(),
    }


def describe(found: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The same for people: a name and its lines."""
    libraries = [f"{name} {version}" for name, version in found["libraries"].items() if version]
    if found["tile_rows"] is None:
        tile = "none, without Numba"
    else:
        tile = f"{found['tile_rows']} rows × {LANES} floats, for {', '.join(found['cpu_features']) or 'any CPU'}"
    c_tiles = [f"{tile['name']} ({tile['rows']} rows)" for tile in found["c_tiles"]]
    c_tile = f"{' or '.join(c_tiles)}; kernels 'c' takes the first" if c_tiles else "none, without the C library"
    return [
        ("corenet", [f"{found['corenet']} on Python {found['python']}, {found['platform']}"]),
        ("libraries", [", ".join(libraries)]),
        ("CPU", [found["cpu"]]),
        ("workers", [found["layout"]]),
        ("kernels", [found["kernels"]]),
        ("tile", [tile]),
        ("bf16", [f"no: {found['bf16']}" if found["bf16"] else "yes, by AVX512-BF16, with precision 'bf16'"]),
        ("C library", [found["c_library"]]),
        ("C tile", [c_tile]),
        ("cache", [found["cache"] or "none: nothing is compiled"]),
        ("BLAS", found["blas"] or ["none that threadpoolctl knows"]),
        ("extras", [f"{name}: {state}" for name, state in found["extras"].items()]),
        ("data sets", [f"{name}: {where}" for name, where in found["datasets"].items()]),
    ]


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _compiler(kernels: str) -> dict[str, Any]:
    """The register tile and the folder of compiled kernels, where Numba compiles."""
    if kernels != "numba":
        return {"tile_rows": None, "cpu_features": [], "cache": None}
    import llvmlite.binding

    from ..kernels.numba_backend import cache_folder, tile_rows

    present = llvmlite.binding.get_host_cpu_features()
    features = [name for name in FEATURES if present.get(name)]
    return {"tile_rows": tile_rows(), "cpu_features": features, "cache": cache_folder()}


def _blas() -> list[str]:
    """The BLAS libraries that NumPy brought."""
    import numpy  # noqa: F401
    import threadpoolctl

    pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    return [f"{pool['internal_api']} {pool['version']} ({pool.get('architecture') or 'any CPU'})" for pool in pools]


def _extras() -> dict[str, str]:
    """What each extra brings and whether it is there, from corenet's own metadata."""
    try:
        requirements = importlib.metadata.requires("corenet") or []
    except importlib.metadata.PackageNotFoundError:  # run from its sources
        return {}
    extras: dict[str, list[str]] = {}
    for requirement in requirements:
        match = re.match(r"([\w.-]+).*;.*\bextra\s*==\s*['\"]([\w.-]+)['\"]", requirement)
        if match and match[2] not in FOR_DEVELOPERS:
            extras.setdefault(match[2], []).append(match[1])
    return {extra: _state(extra, distributions) for extra, distributions in extras.items()}


def _state(extra: str, distributions: list[str]) -> str:
    missing = [name for name in distributions if _version(name) is None]
    if missing:
        return f"no {', '.join(missing)}; pip install 'corenet[{extra}]'"
    return ", ".join(f"{name} {_version(name)}" for name in distributions)


def _datasets() -> dict[str, str]:
    """Where each data set with a name is found."""
    where = dict.fromkeys(BY_NAME, "comes with corenet")
    try:
        find_split(DEBIAN_FOLDER, "train")
        find_split(DEBIAN_FOLDER, "test")
        where["fashion-mnist"] = f"complete, in {DEBIAN_FOLDER}"
    except FileError:
        where["fashion-mnist"] = f"the subset; the complete set is not in {DEBIAN_FOLDER}"
    return where
