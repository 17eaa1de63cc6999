"""Settings of a run: each is checked before any work, and the error names it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import ConfigError


def one_of(name: str, value: Any, names: Iterable[str]) -> None:
    """Check a name; ConfigError lists those there are."""
    if value not in names:
        raise ConfigError(name, expected="one of " + ", ".join(map(repr, names)), got=repr(value))


def duration(name: str, value: Any) -> float:
    """Check a time; ConfigError names it."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool) or not value > 0:
        raise ConfigError(name, expected="seconds, more than 0", got=repr(value))
    return float(value)


def integer(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Check a setting; ConfigError names it."""
    good = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not good or value < least or (most is not None and value > most):
        bound = f"an integer of at least {least}" + (f" and at most {most}" if most is not None else "")
        raise ConfigError(name, expected=bound, got=repr(value))
    return int(value)
