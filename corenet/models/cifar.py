"""Plain nets for colour images of 32×32 pixels, such as CIFAR's."""

from ..nn import AvgPool2d, BatchNorm2d, Conv2d, Flatten, Linear, LocalResponseNorm, MaxPool2d, ReLU, Sequential


def cifar10_quick() -> Sequential:
    """Caffe's CIFAR-10 "quick" net for 32×32×3 images, pooling rounded down."""
    return Sequential(
        Conv2d(3, 32, 5, padding=2), MaxPool2d(3, 2), ReLU(),
        Conv2d(32, 32, 5, padding=2), ReLU(), AvgPool2d(3, 2),
        Conv2d(32, 64, 5, padding=2), ReLU(), AvgPool2d(3, 2),
        Flatten(), Linear(576, 64), Linear(64, 10),
    )  # fmt: skip


def simple_cifar10() -> Sequential:
    """The net of PyTorch's CIFAR-10 tutorial with more and larger filters, 7×7, for 32×32×3 images."""
    return Sequential(
        Conv2d(3, 10, 7, padding=3), ReLU(), MaxPool2d(2),
        Conv2d(10, 20, 7, padding=3), ReLU(), MaxPool2d(2),
        Flatten(), Linear(1280, 120), ReLU(), Linear(120, 84), ReLU(), Linear(84, 10),
    )  # fmt: skip


def alexnet_cifar(classes: int = 10) -> Sequential:
    """The AlexNet-like net of TensorFlow's CIFAR-10 tutorial, after Krizhevsky's cuda-convnet, for 32×32×3 images.

    The tutorial crops to 24×24. Its response norm of radius 4 multiplies a sum by 0.001 / 9, PyTorch's a mean by 0.001.
    """

    def norm():
        return LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)

    def pool():
        return MaxPool2d(3, 2, ceil_mode=True)  # TensorFlow's "SAME": 32 → 16 → 8

    return Sequential(
        Conv2d(3, 64, 5, padding=2), ReLU(), pool(), norm(),
        Conv2d(64, 64, 5, padding=2), ReLU(), norm(), pool(),
        Flatten(), Linear(4096, 384), ReLU(), Linear(384, 192), ReLU(), Linear(192, classes),
    )  # fmt: skip


def vgg_small() -> Sequential:
    """A small VGG with batch normalisation for 32×32×3 images (Simonyan & Zisserman 2015)."""

    def block(channels_in: int, channels_out: int):
        return Conv2d(channels_in, channels_out, 3, padding=1, bias=False), BatchNorm2d(channels_out), ReLU()

    return Sequential(
        *block(3, 32), *block(32, 32), MaxPool2d(2),
        *block(32, 64), *block(64, 64), MaxPool2d(2),
        *block(64, 128), MaxPool2d(2),
        Flatten(), Linear(2048, 128), ReLU(), Linear(128, 10),
    )  # fmt: skip
