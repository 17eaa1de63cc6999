"""From a model file or a checkpoint to a Trainer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import optim
from ..errors import ConfigError, CorenetError, FileError
from ..nn import Layer, build
from ..nn.description import check_arguments, name_of, own_names, user_layers
from ..nn.loss import build_loss
from ..parallel.user_layers import check_may_have_workers, where_to_find
from .checkpoint import load_checkpoint
from .model_file import ModelInfo, load_model
from .tensor_file import DAMAGE
from .trainer import Trainer

FREE = ("workers", "threads", "share_cores", "max_restarts", "worker_timeout")  # settings that do not show in the bits


def load(path: str | Path, *, layers: Sequence[type[Layer]] | type[Layer] = (), **settings: Any) -> Trainer:
    """The Trainer of a saved model, ready to predict and evaluate; settings as for Trainer (workers=…).

    layers: the classes of a net's layers that are not corenet's.

    Its `fit` trains the saved parameters further, but as a new run: the optimizer's momenta and moments are zero, its
    steps and the epochs count from 0, so schedules begin again (a `Plateau` keeps its state), and the order and the
    augmentation of the samples are those of the first epoch, unless another seed is given.

    Raises FileError if the file is not a model, or damaged; ConfigError if it has layers that are not among `layers`.
    """
    check_may_have_workers()
    info, tensors = load_model(path)
    trainer = _trainer(info, f"model {path}", "load", layers, settings)
    with _damage(f"model {path}"):
        trainer.restore(info, tensors)
    return trainer


def resume(path: str | Path, *, layers: Sequence[type[Layer]] | type[Layer] = (), **settings: Any) -> Trainer:
    """The Trainer of a checkpoint: `fit` on the same data goes on to the bits of a run that was never interrupted.

    path: the folder that `fit(checkpoint=…)` wrote, or a file in it; layers: as for `load`; settings: those of Trainer
    that do not show in the bits: workers, threads, share_cores, max_restarts, worker_timeout. An epoch that had begun
    is the first of the next `fit`, whose history has the earlier epochs, too.

    Raises FileError if there is no sound checkpoint, naming an older one if that is; ConfigError as `load` does.
    """
    check_may_have_workers()
    for name in settings:
        if name not in FREE:
            expected, fix = "one of " + ", ".join(FREE), "All else is as it was"
            raise ConfigError("a setting of corenet.resume", expected=expected, got=name, fix=fix)
    file, info, state, arrays = load_checkpoint(path)
    trainer = _trainer(info, f"checkpoint {file}", "resume", layers, {**state.settings, **settings})
    with _damage(f"checkpoint {file}"):
        trainer.resume(info, state, arrays)
    return trainer


def _trainer(info: ModelInfo, what: str, verb: str, layers: Any, settings: dict[str, Any]) -> Trainer:
    """A trainer as a file describes it, with these settings in place of its own."""
    with _damage(what):
        names = own_names(info.net)
    own = _find(names, [layers] if isinstance(layers, type) else list(layers), what, verb)
    fix = f"Use another copy{', or the layers as they were when it was saved' if own else ''}"
    with _damage(what, fix):
        net, optimizer = build(info.net, own), optim.build(info.optimizer)
    where_to_find(user_layers(net))  # raise for what is wrong with the classes, not with the file
    check_arguments(net)
    with _damage(what):
        from_file = Trainer(net, optimizer, build_loss(info.loss), workers=1, chunk=info.chunk, seed=info.seed)
    saved: dict[str, Any] = {"loss": from_file.loss, "chunk": from_file.chunk, "seed": from_file.seed}
    return Trainer(net, optimizer, **{**saved, **settings})


def _find(names: list[str], layers: list[type[Layer]], what: str, verb: str) -> dict[str, type[Layer]]:
    """The class of each name: that of module:name, or else, of another module, the only one of that name."""
    for kind in layers:
        if not (isinstance(kind, type) and issubclass(kind, Layer)):
            raise ConfigError(f"{verb}(layers=…)", expected="classes of layers", got=repr(kind))
    own, missing = {}, []
    for name in names:
        known = [kind for kind in layers if name_of(kind) == name]
        alike = known or [kind for kind in layers if kind.__qualname__ == name.partition(":")[2]]
        if len(set(alike)) > 1:
            got = " and ".join(map(name_of, alike))
            raise ConfigError(f"{what}, {verb}(layers=…)", expected=f"one class for {name}", got=got)
        if alike:
            own[name] = alike[0]
        else:
            missing.append(name)
    if missing:
        expected = f"the classes of layers that are not corenet's: {', '.join(missing)}"
        got = ", ".join(map(name_of, layers)) or "none"
        given = ", ".join(name.partition(":")[2] for name in names)
        fix = f"Import them, and corenet.{verb}(path, layers=[{given}])"
        raise ConfigError(what, expected=expected, got=got, fix=fix)
    return own


@contextlib.contextmanager
def _damage(what: str, fix: str = "Use another copy") -> Iterator[None]:
    """Name the file in errors about what it says."""
    try:
        yield
    except (CorenetError, *DAMAGE) as error:
        got = "a net nested too deeply" if isinstance(error, RecursionError) else str(error)
        if len(got) > 300:  # "expected" comes first and "got" last, and between them may be the names of all layers
            got = f"{got[:200]} … {got[-100:]}"
        raise FileError(f"{what} is damaged", got=got, fix=fix) from error
