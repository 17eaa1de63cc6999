"""Where a checkout keeps what runs other libraries, and how they are spoken to.

A peer is a process of its own, bound to as many cores as corenet has at the same time. It is asked in JSON, a line for
each question and each answer:

    {"do": "layer", "layer": …, "batch": …, "chunk": …}    → {"ways": {pass: the fastest way found, …}}
    {"do": "pass", "name": "forward", "seconds": …}        → {"rate": samples a second}
    {"do": "net", "model": …, "batch": …}                  → {"ways": {"train": …, "predict": …}}
    {"do": "train" or "predict", "seconds": …}             → {"rate": images a second}
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, Protocol

from ..errors import ConfigError, FileError, MissingExtraError

FOLDER, SCRIPT, PARENT = "bench", "torch_peer.py", "peers.py"


class Peer(Protocol):
    """Another library at work on some cores."""

    def ask(self, **question: Any) -> dict[str, Any]: ...

    def close(self) -> None: ...


class Starter(Protocol):
    """The module that starts peers: `bench/peers.py`."""

    VERSION: str

    def start(self, cores: list[int]) -> Peer: ...


def find(places: list[Path] | None = None) -> Starter:
    """The module of a checkout that starts PyTorch. Raises FileError outside of a checkout, or MissingExtraError."""
    if places is None:
        places = [Path(__file__).parents[2], Path.cwd()]
    for place in places:
        path = place / FOLDER / PARENT
        if path.is_file() and path.with_name(SCRIPT).is_file():
            if not _is_installed("torch"):
                raise MissingExtraError("--peers needs PyTorch, which is not installed", fix="pip install torch")
            return _load(path)
    fix = "Run the command in a checkout's folder, or without --peers"
    raise FileError(f"--peers needs a checkout of corenet, with {FOLDER}/{SCRIPT}", got="none here", fix=fix)


def _is_installed(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except ImportError:  # something in the way of imports says so
        return False


def _load(path: Path) -> Any:
    name = "corenet_bench_peers"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(str(path), expected="a Python module", got="none that can be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
