"""Plain nets for grey images of 28×28 and 8×8 pixels."""

from ..nn import Conv2d, Dropout, Dropout2d, Flatten, Linear, MaxPool2d, ReLU, Sequential


def digits_cnn() -> Sequential:
    """The smoke-test net for 8×8×1 images: conv 16, conv 32, FC 64, FC 10."""
    return Sequential(
        Conv2d(1, 16, 3, padding=1), ReLU(),
        Conv2d(16, 32, 3, padding=1), ReLU(), MaxPool2d(2),
        Flatten(), Linear(512, 64), ReLU(), Linear(64, 10),
    )  # fmt: skip


def lenet5() -> Sequential:
    """LeNet-5 for 28×28×1 images (LeCun et al. 1998, with ReLU and max-pooling)."""
    return Sequential(
        Conv2d(1, 6, 5, padding=2), ReLU(), MaxPool2d(2),
        Conv2d(6, 16, 5), ReLU(), MaxPool2d(2),
        Flatten(), Linear(400, 120), ReLU(), Linear(120, 84), ReLU(), Linear(84, 10),
    )  # fmt: skip


def mnist_example() -> Sequential:
    """The net of PyTorch's MNIST example, for 28×28×1 images: 1,199,882 parameters."""
    return Sequential(
        Conv2d(1, 32, 3), ReLU(),
        Conv2d(32, 64, 3), ReLU(), MaxPool2d(2), Dropout(0.25),
        Flatten(), Linear(9216, 128), ReLU(), Dropout(0.5), Linear(128, 10),
    )  # fmt: skip


def keras_mnist() -> Sequential:
    """The net of Keras's simple MNIST example, for 28×28×1 images: 34,826 parameters."""
    return Sequential(
        Conv2d(1, 32, 3), ReLU(), MaxPool2d(2),
        Conv2d(32, 64, 3), ReLU(), MaxPool2d(2),
        Flatten(), Dropout(0.5), Linear(1600, 10),
    )  # fmt: skip


def simple_mnist() -> Sequential:
    """The earlier net of PyTorch's MNIST example, with Dropout2d, for 28×28×1 images: 21,840 parameters."""
    return Sequential(
        Conv2d(1, 10, 5), MaxPool2d(2), ReLU(),
        Conv2d(10, 20, 5), Dropout2d(0.5), MaxPool2d(2), ReLU(),
        Flatten(), Linear(320, 50), ReLU(), Dropout(0.5), Linear(50, 10),
    )  # fmt: skip
