"""A layer of one's own: one class with plan, forward and backward in NumPy, trained on all cores.

Run it: python examples/own_layer.py. Every worker imports this file for the class's sake, so what trains stands below
`if __name__ == "__main__":`. docs/own_layers.md says more.
"""

import numpy as np

import corenet
from corenet import nn


class Swish(nn.Layer):
    """y = x · sigmoid(beta · x), with a beta that is trained (Ramachandran, Zoph & Le 2017)."""

    def __init__(self, beta: float = 1.0):
        self.beta = beta

    def plan(self, p, x):
        """Ask for memory, and write down the steps; called once."""
        beta = p.parameter("beta", (1,), lambda generator, shape: np.full(shape, self.beta))
        y = p.activation(x.shape)
        p.forward(self.forward, x.data, beta.data, y.data)
        p.backward(self.backward, x.data, beta.data, y.grad, x.grad, beta.grad)
        return y

    def forward(self, n, x, beta, y):
        """Arrays are (chunk, …) float32; the first n samples of them are there."""
        y[:n] = x[:n] / (1 + np.exp(-beta * x[:n]))

    def backward(self, n, x, beta, dy, dx, dbeta):
        """From dy to dx and dbeta, sums over these n samples; dx is None where nothing before needs it."""
        x, dy = x[:n], dy[:n]
        sigmoid = 1 / (1 + np.exp(-beta * x))
        slope = sigmoid * (1 - sigmoid)
        dbeta[0] = (dy * x * x * slope).sum()
        if dx is not None:
            dx[:n] = dy * (sigmoid + beta * x * slope)


def main() -> None:
    """Train on the handwritten digits."""
    train, test = corenet.datasets.digits()
    net = nn.Sequential(nn.Conv2d(1, 16, 3), Swish(), nn.Flatten(), nn.Linear(576, 64), Swish(0.5), nn.Linear(64, 10))
    with corenet.Trainer(net, corenet.optim.Adam(2e-3), workers="auto") as trainer:
        trainer.fit(train, epochs=10, validation=test)
        print("beta:", *(f"{value[0]:.3f}" for name, value in trainer.parameters().items() if name.endswith("beta")))


if __name__ == "__main__":
    main()
