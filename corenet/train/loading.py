"""From a model file to a Trainer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import optim
from ..errors import CorenetError, FileError
from ..nn import Layer, build
from ..nn.loss import build_loss
from .model_file import DAMAGE, load_model
from .trainer import Trainer


def load(path: str | Path, *, layers: Sequence[type[Layer]] = (), **settings: Any) -> Trainer:
    """The Trainer of a saved model, ready to predict and evaluate; settings as for Trainer (workers=…).

    layers: the classes of a net's layers that are not corenet's.

    Its `fit` trains the saved parameters further, but as a new run: the optimizer's momenta and moments are zero, its
    steps and the epochs count from 0, so schedules begin again (a `Plateau` keeps its state), and the order and the
    augmentation of the samples are those of the first epoch, unless another seed is given.

    Raises FileError if the file is not a model, or damaged.
    """
    info, tensors = load_model(path)
    with _damage(path):
        net, optimizer = build(info.net, {kind.__qualname__: kind for kind in layers}), optim.build(info.optimizer)
        from_file = Trainer(net, optimizer, build_loss(info.loss), workers=1, chunk=info.chunk, seed=info.seed)
    saved: dict[str, Any] = {"loss": from_file.loss, "chunk": from_file.chunk, "seed": from_file.seed}
    trainer = Trainer(net, optimizer, **{**saved, **settings})
    with _damage(path):
        trainer.restore(info, tensors)
    return trainer


@contextlib.contextmanager
def _damage(path: str | Path) -> Iterator[None]:
    """Name the file in errors about what it says."""
    try:
        yield
    except (CorenetError, *DAMAGE) as error:
        got = "a net nested too deeply" if isinstance(error, RecursionError) else str(error)
        if len(got) > 300:  # "expected" comes first and "got" last, and between them may be the names of all layers
            got = f"{got[:200]} … {got[-100:]}"
        raise FileError(f"model {path} is damaged", got=got, fix="Use another copy") from error
