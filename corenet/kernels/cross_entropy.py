"""Softmax cross-entropy and its gradient in one pass.

    loss_i = log Σ_j exp(x_ij) − x_i,label        dx_ij = (softmax(x_i)_j − [j = label]) / count

`count` is the number of samples of the whole batch (clock[COUNT]), not of the chunk: gradients of chunks then simply
add up to the gradient of the batch's mean loss, however unequal the chunks and slices are.
"""

import numpy as np

from .clock import COUNT
from .operation import operation, prange

LOSS, CORRECT = 0, 1  # places in `metrics`


@operation
def forward_backward(n, x, labels, dx, losses, metrics, clock):
    """From logits x (chunk, classes) and labels (chunk,) int64: dx, losses (chunk,), and metrics (2,) float64.

    metrics = Σ loss of the n samples, and how many have their largest logit (the first of equals) at the label.
    """
    rows = np.arange(n)
    shifted = x[:n] - x[:n].max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    total = exponentials.sum(axis=1, keepdims=True)
    losses[:n] = np.log(total[:, 0]) - shifted[rows, labels[:n]]
    dx[:n] = exponentials / total
    dx[rows, labels[:n]] -= 1
    dx[:n] /= clock[COUNT]
    metrics[LOSS] = losses[:n].sum(dtype=np.float64)
    metrics[CORRECT] = np.count_nonzero(x[:n].argmax(axis=1) == labels[:n])


@forward_backward.nest
def forward_backward_nest(n, x, labels, dx, losses, metrics, clock):
    scale = np.float32(1) / np.float32(clock[COUNT])
    classes = x.shape[1]
    for i in prange(n):
        largest = x[i, 0]
        for j in range(1, classes):
            if x[i, j] > largest:
                largest = x[i, j]
        total = np.float32(0)
        for j in range(classes):
            dx[i, j] = np.exp(x[i, j] - largest)
            total += dx[i, j]
        losses[i] = np.log(total) - (x[i, labels[i]] - largest)
        for j in range(classes):
            dx[i, j] = dx[i, j] / total * scale
        dx[i, labels[i]] -= scale
    loss, correct = 0.0, 0.0
    for i in range(n):
        loss += losses[i]
        best = 0
        for j in range(1, classes):
            if x[i, j] > x[i, best]:
                best = j
        correct += best == labels[i]
    metrics[LOSS] = loss
    metrics[CORRECT] = correct
