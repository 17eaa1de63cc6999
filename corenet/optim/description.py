"""An optimizer and its schedule as plain data and back, for the workers and the model file."""

from __future__ import annotations

import inspect
from typing import Any

from ..errors import ConfigError
from .adam import Adam, AdamW
from .adaptive import Adadelta, Adagrad, RMSprop
from .layerwise import LAMB, LARS
from .optimizer import SGD, Optimizer
from .plateau import Plateau
from .schedule import Constant, Cosine, Exponential, Inverse, MultiStep, Polynomial, Schedule, Step
from .warmup import OneCycle, Warmup

OPTIMIZERS = (SGD, Adam, AdamW, RMSprop, Adagrad, Adadelta, LARS, LAMB)
SCHEDULES = (Constant, Step, MultiStep, Exponential, Inverse, Polynomial, Cosine, OneCycle, Warmup, Plateau)
KINDS: dict[str, type] = {kind.__name__: kind for kind in (*OPTIMIZERS, *SCHEDULES)}


def describe(thing: Optimizer | Schedule) -> dict[str, Any]:
    """An optimizer or schedule as a JSON-able dict."""
    name = type(thing).__name__
    if KINDS.get(name) is not type(thing):
        raise ConfigError("optimizer", expected="one of corenet.optim", got=repr(thing))
    values = {key: getattr(thing, key) for key in inspect.signature(type(thing)).parameters}
    return {"type": name} | {k: describe(v) if isinstance(v, Schedule) else v for k, v in values.items()}


def build(description: dict[str, Any]) -> Any:
    """What `describe` described. Raises ConfigError for anything else."""
    if not isinstance(description, dict) or description.get("type") not in KINDS:
        raise ConfigError("optimizer description", expected="one of " + ", ".join(KINDS), got=repr(description)[:80])
    arguments = {k: build(v) if isinstance(v, dict) else v for k, v in description.items() if k != "type"}
    try:
        return KINDS[description["type"]](**arguments)
    except TypeError as error:
        raise ConfigError("optimizer description", got=str(error)) from error
