"""corenet's models in PyTorch, written once more as their sources have them."""

from __future__ import annotations

import torch
from torch import nn
from torch_nets import Flatten


def lenet5():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


class MnistExample(nn.Module):
    """pytorch/examples/mnist."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, 1), nn.Conv2d(32, 64, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = nn.functional.relu(self.conv1(x))
        x = nn.functional.relu(self.conv2(x))
        x = self.dropout1(nn.functional.max_pool2d(x, 2))
        x = nn.functional.relu(self.fc1(Flatten()(x)))
        return self.fc2(self.dropout2(x))


def keras_mnist():
    """keras.io/examples/vision/mnist_convnet."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        Flatten(), nn.Dropout(0.5), nn.Linear(1600, 10),
    )  # fmt: skip


def digits_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def cifar10_quick():
    """Caffe's examples/cifar10/cifar10_quick_train_test.prototxt, pooling rounded down instead of up."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.MaxPool2d(3, 2), nn.ReLU(),
        nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(), nn.AvgPool2d(3, 2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.AvgPool2d(3, 2),
        Flatten(), nn.Linear(64 * 3 * 3, 64), nn.Linear(64, 10),
    )  # fmt: skip


def vgg_small():
    layers: list[nn.Module] = []
    channels = 3
    for width in (32, 32, "pool", 64, 64, "pool", 128, "pool"):
        if width == "pool":
            layers.append(nn.MaxPool2d(2, 2))
        else:
            assert isinstance(width, int)
            layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
    return nn.Sequential(*layers, Flatten(), nn.Linear(128 * 4 * 4, 128), nn.ReLU(), nn.Linear(128, 10))


class BasicBlock(nn.Module):
    """He et al. 2016, figure 2 left, with option B of section 3.3: a projection where shapes differ."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        projection = stride != 1 or inputs != width
        self.shortcut = (
            nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))
            if projection
            else nn.Identity()
        )

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.shortcut(x))


def resnet(n):
    """He et al. 2016, section 4.2."""
    blocks, inputs = [], 16
    for width, first_stride in ((16, 1), (32, 2), (64, 2)):
        for stride in (first_stride, *[1] * (n - 1)):
            blocks.append(BasicBlock(inputs, width, stride))
            inputs = width
    stem = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class EarlierMnistExample(nn.Module):
    """pytorch/examples/mnist until 2019."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x):
        x = nn.functional.relu(nn.functional.max_pool2d(self.conv1(x), 2))
        x = nn.functional.relu(nn.functional.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = nn.functional.relu(self.fc1(Flatten()(x)))
        return self.fc2(nn.functional.dropout(x, training=self.training))


class SimpleCifar10(nn.Module):
    """PyTorch's tutorial "Training a classifier", with other sizes."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 10, 7, padding=3), nn.Conv2d(10, 20, 7, padding=3)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1, self.fc2, self.fc3 = nn.Linear(20 * 8 * 8, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(Flatten()(x))))))


class AlexNetCifar(nn.Module):
    """TensorFlow's tutorials/image/cifar10/cifar10.py, without the crop; its pooling pads at the far edges only."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 64, 5, padding="same"), nn.Conv2d(64, 64, 5, padding="same")
        self.local3, self.local4, self.softmax = nn.Linear(8 * 8 * 64, 384), nn.Linear(384, 192), nn.Linear(192, 10)

    def pool(self, x):
        return nn.functional.max_pool2d(nn.functional.pad(x, (0, 1, 0, 1), value=-torch.inf), 3, 2)

    def norm(self, x, radius=4, alpha=0.001 / 9, beta=0.75):
        squares = nn.functional.pad(x.square(), (0, 0, 0, 0, radius, radius))
        return x / (1 + alpha * squares.unfold(1, 2 * radius + 1, 1).sum(-1)) ** beta

    def forward(self, x):
        x = self.norm(self.pool(torch.relu(self.conv1(x))))
        x = self.pool(self.norm(torch.relu(self.conv2(x))))
        return self.softmax(torch.relu(self.local4(torch.relu(self.local3(Flatten()(x))))))


class InceptionSmall(nn.Module):
    """Zhang et al. 2017, figure 3."""

    def __init__(self):
        super().__init__()
        modules, inputs = [self.conv(3, 96, 3, 1)], 96
        for kind, *sizes in (
            ("in", 32, 32), ("in", 32, 48), ("down", 80), ("in", 112, 48), ("in", 96, 64), ("in", 80, 80),
            ("in", 48, 96), ("down", 96), ("in", 176, 160), ("in", 176, 160),
        ):  # fmt: skip
            if kind == "in":
                branches = [self.conv(inputs, sizes[0], 1, 1), self.conv(inputs, sizes[1], 3, 1)]
            else:
                branches = [self.conv(inputs, sizes[0], 3, 2), nn.MaxPool2d(3, 2, 1)]
            modules.append(nn.ModuleList(branches))
            inputs = sum(sizes) + (inputs if kind == "down" else 0)
        self.parts, self.last = nn.ModuleList(modules), nn.Linear(336, 10)

    def conv(self, inputs, outputs, kernel, stride):
        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2)
        return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())

    def forward(self, x):
        for part in self.parts:
            x = torch.cat([b(x) for b in part], 1) if isinstance(part, nn.ModuleList) else part(x)
        return self.last(x.mean((2, 3)))


class UNetSmall(nn.Module):
    """Ronneberger et al. 2015, figure 1, with two poolings, 16 channels at first, and padding."""

    def __init__(self):
        super().__init__()
        self.left1, self.left2, self.bottom = self.convs(1, 16), self.convs(16, 32), self.convs(32, 64)
        self.up2, self.right2 = nn.ConvTranspose2d(64, 32, 2, 2), self.convs(64, 32)
        self.up1, self.right1 = nn.ConvTranspose2d(32, 16, 2, 2), self.convs(32, 16)
        self.last = nn.Conv2d(16, 2, 1)

    def convs(self, a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, 1, 1), nn.ReLU(), nn.Conv2d(b, b, 3, 1, 1), nn.ReLU())

    def forward(self, x):
        skip1 = self.left1(x)
        skip2 = self.left2(nn.functional.max_pool2d(skip1, 2))
        x = self.up2(self.bottom(nn.functional.max_pool2d(skip2, 2)))
        x = self.up1(self.right2(torch.cat([skip2, x], 1)))
        return self.last(self.right1(torch.cat([skip1, x], 1)))


class Spectrum(nn.Module):
    """(n, bands, h, w) as images with one channel: sequences of a pixel's bands, or volumes (h, w, bands)."""

    def __init__(self, dims):
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return x.flatten(1)[:, None] if self.dims == 1 else x.movedim(1, -1)[:, None]


# github.com/mhaut/hyperspectral_deeplearning_review, algorithms/cnn1d.py, cnn2d.py and cnn3d.py.


def cnn1d():
    return nn.Sequential(
        Spectrum(1), nn.Conv1d(1, 20, 24), nn.ReLU(), nn.MaxPool1d(5), Flatten(),
        nn.Linear(35 * 20, 100), nn.BatchNorm1d(100), nn.ReLU(), nn.Linear(100, 16),
    )  # fmt: skip


def cnn2d():
    return nn.Sequential(
        nn.Conv2d(200, 50, 5), nn.ReLU(), nn.Conv2d(50, 100, 5), nn.ReLU(), nn.MaxPool2d(2), Flatten(),
        nn.Linear(5 * 5 * 100, 100), nn.ReLU(), nn.Linear(100, 16),
    )  # fmt: skip


def cnn3d():
    return nn.Sequential(
        Spectrum(3), nn.Conv3d(1, 32, (5, 5, 24)), nn.BatchNorm3d(32), nn.ReLU(),
        nn.Conv3d(32, 64, (5, 5, 16)), nn.BatchNorm3d(64), nn.ReLU(), nn.MaxPool3d((2, 2, 1)), Flatten(),
        nn.Linear(5 * 5 * 2 * 64, 300), nn.BatchNorm1d(300), nn.ReLU(), nn.Linear(300, 16),
    )  # fmt: skip


MODELS = {
    "digits_cnn": digits_cnn,
    "lenet5": lenet5,
    "mnist_example": MnistExample,
    "keras_mnist": keras_mnist,
    "simple_mnist": EarlierMnistExample,
    "cifar10_quick": cifar10_quick,
    "simple_cifar10": SimpleCifar10,
    "alexnet_cifar": AlexNetCifar,
    "vgg_small": vgg_small,
    "resnet20": lambda: resnet(3),
    "resnet32": lambda: resnet(5),
    "resnet44": lambda: resnet(7),
    "resnet56": lambda: resnet(9),
    "resnet110": lambda: resnet(18),
    "inception_small": InceptionSmall,
    "unet_small": UNetSmall,
    "cnn1d": cnn1d,
    "cnn2d": cnn2d,
    "cnn3d": cnn3d,
}
