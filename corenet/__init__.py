"""corenet: train small convolutional nets on the cores of one machine.

    import corenet
    train, test = corenet.datasets.fashion_mnist()
    with corenet.Trainer(corenet.models.keras_mnist(), corenet.optim.Adam(1e-3)) as trainer:
        trainer.fit(train, epochs=5, batch_size=128, validation=test)

Importing the package imports nothing else (PEP 562): NumPy and the rest come with the first name that is used, so
`import corenet` starts no thread, compiles nothing and leaves the process as it was.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import datasets as datasets
    from . import errors as errors
    from . import models as models
    from . import nn as nn
    from . import optim as optim
    from . import train as train
    from .errors import CorenetError as CorenetError
    from .train import Trainer as Trainer
    from .train import load as load
    from .train import resume as resume

__version__ = "0.1.0"

_SUBMODULES = ("datasets", "errors", "models", "nn", "optim", "train")
_NAMES = {"Trainer": "train", "load": "train", "resume": "train", "CorenetError": "errors"}

__all__ = [
    "CorenetError", "Trainer", "__version__", "datasets", "errors", "load", "models", "nn", "optim", "resume", "train",
]  # fmt: skip


def __getattr__(name: str):
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
