"""More layers as a user writes them: a class name that is taken elsewhere, layers of layers, arguments that change."""

import user_layers

from corenet import nn


class Swish(user_layers.Swish):
    """Of the same name as another, from another module: it begins with another beta."""

    def __init__(self, start):
        super().__init__(beta=start)
        self.start = start

    def forward(self, n, x, beta, y):
        y[:n] = 10


class Louder(nn.Layer):
    """Its argument is in decibels; it keeps the factor by the same name, or, as it should, by another."""

    def __init__(self, gain, mistaken=False):
        self.gain, self.mistaken, self.factor = gain, mistaken, 10 ** (gain / 20)
        if mistaken:
            self.gain = self.factor

    def plan(self, p, x):
        y = p.activation(x.shape)
        p.forward(self.times, x.data, y.data)
        p.backward(self.times, y.grad, x.grad)
        return y

    def times(self, n, x, y):
        y[:n] = self.factor * x[:n]


class Wrapped(nn.Layer):
    """Keeps its argument inside of another layer."""

    def __init__(self, body):
        self.body = nn.Sequential(body, nn.ReLU())


class Block(nn.Sequential):
    """A Sequential that makes its layers itself, as one does in PyTorch."""

    def __init__(self, channels):
        super().__init__(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        self.channels = channels


class ForgetfulBlock(nn.Sequential):
    def __init__(self, channels):
        super().__init__(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU())


class Plain(nn.Sequential):
    """A Sequential by another name."""
