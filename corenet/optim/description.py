"""An optimizer and its schedule as plain data and back, for the workers and the model file."""

from __future__ import annotations

import inspect
from typing import Any

from ..errors import ConfigError
from .adam import Adam, AdamW
from .adaptive import Adadelta, Adagrad, RMSprop
from .common import Common, Group
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
    own = [key for key, p in inspect.signature(type(thing)).parameters.items() if p.kind is not p.VAR_KEYWORD]
    values = {key: getattr(thing, key) for key in own}
    if isinstance(thing, Optimizer) and thing.common != Common():
        values |= vars(thing.common) | {"groups": [vars(group) for group in thing.common.groups]}
    return {"type": name} | {k: describe(v) if isinstance(v, Schedule) else v for k, v in values.items()}


def build(description: dict[str, Any]) -> Any:
    """What `describe` described. Raises ConfigError for anything else."""
    if not isinstance(description, dict) or description.get("type") not in KINDS:
        raise ConfigError("optimizer description", expected="one of " + ", ".join(KINDS), got=repr(description)[:80])
    try:
        arguments = {k: build(v) if isinstance(v, dict) else v for k, v in description.items() if k != "type"}
        if "groups" in arguments:
            arguments["groups"] = [Group(**group) for group in arguments["groups"]]
        return KINDS[description["type"]](**arguments)
    except TypeError as error:
        raise ConfigError("optimizer description", got=str(error)) from error
