"""Errors that name the object, what was expected, what was found, and what to do.

Every error a user can cause derives from `CorenetError`, so a program (and the command line) can tell a mistake in
its input from a defect in corenet. Each class also derives from the built-in a caller would expect to catch.
"""


class CorenetError(Exception):
    """An error in what the caller gave: `what` failed; expected this, got that; do this about it."""

    def __init__(self, what: str, *, expected: object = None, got: object = None, fix: str | None = None):
        parts = []
        if expected is not None:
            parts.append(f"expected {expected}")
        if got is not None:
            parts.append(f"got {got}")
        message = what + (": " + ", ".join(parts) if parts else "")
        super().__init__(f"{message}. {fix}" if fix else message)


class ShapeError(CorenetError, ValueError):
    """Shapes that do not fit together: of layers, of arrays, of an image and a net."""


class ConfigError(CorenetError, ValueError):
    """A setting outside what it may be: a batch size of 0, an unknown model name, too many workers."""


class LayerError(CorenetError, RuntimeError):
    """A layer of the user's own does not do what a layer must, or a function of it raised."""


class DataError(CorenetError, ValueError):
    """Data that cannot be trained on: labels out of range, NaN, an empty set."""


class FileError(CorenetError, OSError):
    """A file that is missing, truncated, damaged or of another kind than it should be."""


class MissingExtraError(CorenetError, ImportError):
    """An optional library is not installed; the message names the extra that brings it."""


class TrainingError(CorenetError, ArithmeticError):
    """Training went wrong numerically, such as a loss that is no longer finite."""


class WorkerError(CorenetError, RuntimeError):
    """A worker process died, or raised; the message has its traceback or its likely cause."""
