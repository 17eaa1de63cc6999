"""Layers as a user writes them, in a module that workers can import."""

import numpy as np

from corenet import nn


class Swish(nn.Layer):
    """x · sigmoid(beta · x), beta trained; in any float dtype."""

    def __init__(self, beta=1.0):
        self.beta = beta

    def plan(self, p, x):
        beta = p.parameter("beta", (1,), lambda generator, shape: np.full(shape, self.beta))
        y = p.activation(x.shape)
        p.forward(self.forward, x.data, beta.data, y.data)
        p.backward(self.backward, x.data, beta.data, y.grad, x.grad, beta.grad)
        return y

    def forward(self, n, x, beta, y):
        y[:n] = x[:n] / (1 + np.exp(-beta * x[:n]))

    def backward(self, n, x, beta, dy, dx, dbeta):
        x, dy = x[:n], dy[:n]
        sigmoid = 1 / (1 + np.exp(-beta * x))
        slope = sigmoid * (1 - sigmoid)
        dbeta[0] = (dy * x * x * slope).sum()
        if dx is not None:
            dx[:n] = dy * (sigmoid + beta * x * slope)


class Both(nn.Layer):
    """A layer of two layers, and a mean of what they say."""

    class Half(nn.Layer):
        """Half of everything."""

        def plan(self, p, x):
            y = p.activation(x.shape)
            p.forward(self.halve, x.data, y.data)
            p.backward(self.halve, y.grad, x.grad)
            return y

        def halve(self, n, x, y):
            y[:n] = 0.5 * x[:n]

    def __init__(self, layers):
        self.layers = layers

    def plan(self, p, x):
        for index, layer in enumerate(self.layers):
            x = p.child(str(index), layer, x)
        return x


class Forgetful(nn.Layer):
    def __init__(self, size):
        self.its_size = size


class Breaks(nn.Layer):
    """Fails in the middle of training."""

    def plan(self, p, x):
        y = p.activation(x.shape)
        p.forward(self.forward, x.data, y.data, p.clock)
        p.backward(lambda n, dy, dx: np.copyto(dx[:n], dy[:n]), y.grad, x.grad)
        return y

    def forward(self, n, x, y, clock):
        if clock[2] == 3:
            raise ValueError("of all things, step 3")
        y[:n] = x[:n]


class Returns(nn.Layer):
    """Returns its output instead of writing it."""

    def plan(self, p, x):
        y = p.activation(x.shape)
        p.forward(lambda n, x, y: 2 * x[:n], x.data, y.data)
        p.backward(lambda n, dy, dx: np.copyto(dx[:n], dy[:n]), y.grad, x.grad)
        return y


class Miscalled(nn.Layer):
    """Its backward takes fewer arrays than it is given."""

    def plan(self, p, x):
        y = p.activation(x.shape)
        p.forward(lambda n, x, y: np.copyto(y[:n], x[:n]), x.data, y.data)
        p.backward(lambda n, dy: None, y.grad, x.grad)
        return y
