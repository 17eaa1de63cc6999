"""Training and using nets: Trainer, callbacks, history, model files."""

from .callback import Callback, PrintEpochs
from .history import History
from .loading import load, resume
from .trainer import Trainer

__all__ = ["Callback", "History", "PrintEpochs", "Trainer", "load", "resume"]
