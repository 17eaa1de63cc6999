"""Nets that classify pixels of hyperspectral images by patches around them (h, w, bands), after Paoletti et al. 2019.

"Deep learning classifiers for hyperspectral imaging: A review"; the sizes are those for Indian Pines.
"""

from ..nn import (
    BatchNorm1d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    Flatten,
    Linear,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    ReLU,
    Reshape,
    Sequential,
)
from ..nn.layer import integer

PATCH = 19  # pixels: height and width


def cnn1d(bands: int = 200, classes: int = 16) -> Sequential:
    """Of the spectrum of one pixel (1, 1, bands), at least 28 bands."""
    integer("cnn1d", "bands", bands, 28)
    return Sequential(
        Reshape(bands, 1), Conv1d(1, 20, 24), ReLU(), MaxPool1d(5),
        Flatten(), Linear((bands - 23) // 5 * 20, 100), BatchNorm1d(100), ReLU(), Linear(100, classes),
    )  # fmt: skip


def cnn2d(bands: int = 200, classes: int = 16) -> Sequential:
    """Of patches (19, 19, bands)."""
    return Sequential(
        Conv2d(bands, 50, 5), ReLU(), Conv2d(50, 100, 5), ReLU(), MaxPool2d(2),
        Flatten(), Linear(2500, 100), ReLU(), Linear(100, classes),
    )  # fmt: skip


def cnn3d(bands: int = 40, classes: int = 16) -> Sequential:
    """Of patches (19, 19, bands), at least 39 bands: principal components of the spectrum."""
    integer("cnn3d", "bands", bands, 39)
    return Sequential(
        Reshape(PATCH, PATCH, bands, 1),
        Conv3d(1, 32, (5, 5, 24)), BatchNorm3d(32), ReLU(),
        Conv3d(32, 64, (5, 5, 16)), BatchNorm3d(64), ReLU(), MaxPool3d((2, 2, 1)),
        Flatten(), Linear(1600 * (bands - 38), 300), BatchNorm1d(300), ReLU(), Linear(300, classes),
    )  # fmt: skip
