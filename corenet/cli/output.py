"""What programs read: one JSON object on standard output, numbers that JSON has."""

import json
import math
from typing import Any


def print_json(result: dict[str, Any]) -> None:
    """Print an object as one line."""
    print(to_json(result))


def to_json(result: dict[str, Any], indent: int | None = None) -> str:
    """JSON text in which infinity and NaN, which JSON has not, are null."""
    return json.dumps(_finite(result), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
