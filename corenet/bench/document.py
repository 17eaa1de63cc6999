"""A suite's result as JSON: where and with what it was measured, the machine's peaks, and a line for each measurement.

    {"format": "corenet bench", "version": 1, "suite": "kernels" or "step", "settings": …, "machine": …, "versions": …,
     "kernels": …, "peaks": …, "lines": [{"name": …, "unit": …, "values": […], "median": …, "low": …, "high": …, …}]}

`values` are all repetitions; a line's name is unique in its suite, which is how two documents are compared.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import ConfigError, FileError
from ..kernels.backend import Backend
from ..parallel.topology import usable_cpus
from ..report.machine import cpu_model
from ..train.files import write_atomically
from .peaks import Peaks

FORMAT, VERSION = "corenet bench", 1
LIBRARIES = ("numpy", "numba", "llvmlite")


def make(
    suite: str, lines: list[dict[str, Any]], *, settings: dict[str, Any], backend: Backend, peaks: Peaks,
    versions: dict[str, str],
) -> dict[str, Any]:  # fmt: skip
    """The document of a suite that has run."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "suite": suite,
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "settings": settings,
        "machine": {
            "name": platform.node(),
            "cpu": cpu_model(),
            "cores": usable_cpus(),
            "system": platform.platform(),
        },
        "versions": {"corenet": __version__, "python": platform.python_version(), **_libraries(), **versions},
        "kernels": backend.reason,
        "peaks": peaks.to_json(),
        "lines": lines,
    }


def _libraries() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in LIBRARIES}


def write(path: Path, document: dict[str, Any]) -> None:
    """Write it, at once or not at all. Raises FileError."""
    write_atomically(path, (json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode())


def check_writable(path: Path) -> None:
    """Find out before the measurements, which take long, what would be in the way after them. Raises FileError."""
    folder = path.parent
    got = "a folder" if path.is_dir() else None if folder.is_dir() else f"no folder {folder}"
    if got is None:
        try:
            with tempfile.TemporaryFile(dir=folder):
                return
        except OSError as error:  # a folder that takes no files: not ours, read-only, full
            got = f"{error.strerror} in {folder}"
    raise FileError(f"--json {path}", expected="a file to write", got=got)


def read(path: Path) -> dict[str, Any]:
    """Read a document. Raises FileError for what is none, or damaged."""
    fix = f"Give a file that corenet bench wrote with --json, version {VERSION}"
    expected = "a result of corenet bench"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(str(path), expected=expected, got=error.strerror or str(error), fix=fix) from None
    except (ValueError, RecursionError):
        raise FileError(str(path), expected=expected, got="no JSON, or a part of it", fix=fix) from None
    problem = _problem(document)
    if problem:
        raise FileError(str(path), expected=expected, got=problem, fix=fix)
    return document


def _problem(document: Any) -> str | None:
    """What is not as it should be in what has been read."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return "other JSON"
    if document.get("version") != VERSION:
        return f"version {document.get('version')!r}"
    machine, lines = document.get("machine"), document.get("lines")
    if not (isinstance(document.get("suite"), str) and isinstance(machine, dict) and isinstance(lines, list)):
        return "a damaged file: no suite, machine or lines"
    for number, line in enumerate(lines):
        good = isinstance(line, dict) and isinstance(line.get("name"), str) and isinstance(line.get("unit"), str)
        if not good or not all(_is_rate(line.get(key)) for key in ("median", "low", "high")):
            return f"a damaged file: line {number} has no name, unit or numbers"
    return None


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def compare(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """New ÷ old of each line that both have, and the names of those that only one has.

    A change counts as clear where the two spreads do not touch. Raises ConfigError for different suites.
    """
    if old["suite"] != new["suite"]:
        raise ConfigError("the two results", expected="one suite", got=f"{old['suite']!r} and {new['suite']!r}")
    before, after = ({line["name"]: line for line in document["lines"]} for document in (old, new))
    lines = []
    for name, a in before.items():
        if name in after and after[name]["unit"] == a["unit"]:
            b = after[name]
            clear = b["low"] > a["high"] or b["high"] < a["low"]
            ratio = b["median"] / a["median"]
            row = {"name": name, "unit": a["unit"], "old": a["median"], "new": b["median"]}
            lines.append({**row, "ratio": ratio, "clear": clear})
    if not lines:
        raise ConfigError("the two results", expected="lines of the same names", got="none")
    matched = {line["name"] for line in lines}
    only = {which: [n for n in names if n not in matched] for which, names in (("old", before), ("new", after))}
    machines = {which: document["machine"].get("cpu") for which, document in (("old", old), ("new", new))}
    return {"suite": old["suite"], "machines": machines, "lines": lines, "only": only}
