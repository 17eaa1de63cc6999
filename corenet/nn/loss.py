"""Losses: the last steps of a training plan. They divide by the samples of the batch, never of a chunk."""

import numpy as np

from ..engine import Planner, Tensor
from ..errors import ConfigError
from ..kernels import cross_entropy


class CrossEntropy:
    """Softmax cross-entropy of logits (classes,) and an integer label."""

    name = "cross_entropy"

    def plan(self, p: Planner, x: Tensor, labels, metrics) -> None:
        """Append the step that makes the gradient of x, and the sums in metrics."""
        if len(x.shape) != 1:
            p.fail(
                expected="one logit per class: an output of shape (classes,)",
                got=f"output of shape {x.shape}",
                fix="End the net with Flatten and Linear(…, classes)",
            )
        if x.grad is None:
            p.fail(expected="a layer between images and loss", got="none", fix="Add Linear(…, classes)")
        p.forward(cross_entropy.forward_backward, x.data, labels, x.grad, p.buffer((p.chunk,)), metrics, p.clock)

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """Class probabilities (n, classes) from logits."""
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        return exponentials / exponentials.sum(axis=1, keepdims=True)

    def scores(self, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """Mean loss and accuracy, in double."""
        shifted = logits - logits.max(axis=1, keepdims=True).astype(np.float64)
        losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]
        return {"loss": float(losses.mean()), "accuracy": float((logits.argmax(axis=1) == labels).mean())}


LOSSES = {CrossEntropy.name: CrossEntropy}


def get_loss(name: str) -> CrossEntropy:
    """The loss of that name; ConfigError lists the names."""
    if name not in LOSSES:
        raise ConfigError("loss", expected="one of " + ", ".join(map(repr, LOSSES)), got=repr(name))
    return LOSSES[name]()
