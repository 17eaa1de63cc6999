"""The name of the CPU, as people know it."""

import platform
import re
from pathlib import Path


def cpu_model(root: str | Path = "/") -> str:
    """Such as "AMD EPYC"; the architecture where the system has no better name."""
    try:
        text = (Path(root) / "proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    name = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(\S.*)$", text, re.MULTILINE)
    return " ".join(name[1].split()) if name else platform.processor() or platform.machine() or "unknown CPU"
