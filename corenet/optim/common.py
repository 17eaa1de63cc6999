"""What every optimizer can be given besides its own numbers: groups of parameters, clipping, averaged weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ..errors import ConfigError
from .schedule import below_one, positive


@dataclass(frozen=True)
class Group:
    """Parameters that are treated otherwise: those whose name matches, and that have at most max_ndim axes.

    names: a pattern such as "0.*" or "*.bias"; max_ndim=1 selects biases and the scales of normalisation layers;
    weight_decay: in place of the optimizer's; lr_scale: a factor on its rate.
    """

    names: str = "*"
    max_ndim: int | None = None
    weight_decay: float | None = None
    lr_scale: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.names, str):
            raise ConfigError("Group(names=…)", expected="a pattern of parameter names", got=repr(self.names))
        if self.max_ndim is not None and (isinstance(self.max_ndim, bool) or not isinstance(self.max_ndim, int)):
            raise ConfigError("Group(max_ndim=…)", expected="an integer", got=repr(self.max_ndim))
        if self.weight_decay is not None:
            positive("Group", "weight_decay", self.weight_decay, zero=True)
        positive("Group", "lr_scale", self.lr_scale, zero=True)

    def matches(self, name: str, shape: tuple[int, ...]) -> bool:
        """Whether a parameter belongs to the group."""
        return fnmatchcase(name, self.names) and (self.max_ndim is None or len(shape) <= self.max_ndim)


NO_DECAY = Group(max_ndim=1, weight_decay=0.0)  # biases and normalisation are usually not decayed


@dataclass(frozen=True)
class Common:
    """groups: the first that matches a parameter counts; clip_value: every gradient element is cut to ±clip_value;
    clip_norm: the whole gradient is scaled down to that length where it is longer; ema: the decay of an average of the
    weights that is kept beside them, and that prediction, evaluation and saving use.
    """

    groups: tuple[Group, ...] = ()
    clip_value: float | None = None
    clip_norm: float | None = None
    ema: float | None = None

    def check_groups(self, names: Sequence[str]) -> None:
        """Raise ConfigError for a group whose pattern no parameter of the net matches: it is misspelled."""
        for group in self.groups:
            if not any(fnmatchcase(name, group.names) for name in names):
                expected = f"a pattern that matches some of {', '.join(names[:8])}{', …' if len(names) > 8 else ''}"
                raise ConfigError("Group(names=…)", expected=expected, got=repr(group.names))

    @staticmethod
    def checked(owner: str, options: dict[str, Any]) -> Common:
        """Options from keyword arguments. Raises TypeError for unknown names, ConfigError for impossible values."""
        for name in options.keys() - Common.__dataclass_fields__:
            raise TypeError(f"{owner}() got an unexpected keyword argument {name!r}")
        common = Common(**options)
        groups = common.groups
        if not isinstance(groups, Sequence) or not all(isinstance(group, Group) for group in groups):
            raise ConfigError(f"{owner}(groups=…)", expected="a list of corenet.optim.Group", got=repr(groups))
        for name in ("clip_value", "clip_norm"):
            if getattr(common, name) is not None:
                positive(owner, name, getattr(common, name))
        if common.ema is not None:
            below_one(owner, "ema", common.ema)
        return Common(tuple(groups), common.clip_value, common.clip_norm, common.ema)
