"""A layer that ruins its worker, at a chosen place of the run and a chosen number of times."""

import ctypes
import os
import signal
import time

import numpy as np

from corenet import nn
from corenet.kernels import clock


class Faulty(nn.Layer):
    """Hands on what it gets. `fault`: a signal's name, or "segfault", "loop", "exit", "memory", "raise"; "forward" and
    "backward" make a number that is not finite there, always; "slow" takes a third of a second for every chunk.
    """

    def __init__(self, fault: str, folder: str, times: int = 1, step: int = 3, first: int = 0):
        """folder: where files count how often it has happened, over all processes; step, first: the step, and the
        number in the batch of the chunk's first sample.
        """
        self.fault, self.folder, self.times, self.step, self.first = fault, folder, times, step, first

    def plan(self, p, x):
        y = p.activation(x.shape)
        p.forward(self.forward, x.data, y.data, p.clock)
        p.backward(self.backward, y.grad, x.grad, p.clock)
        return y

    def forward(self, n, x, y, now):
        y[:n] = x[:n]
        if self.fault == "slow":
            time.sleep(0.33)
        if self.here(now) and self.fault == "forward":
            y[n - 1] = np.nan
        elif self.times and self.here(now) and self.fault != "backward" and len(os.listdir(self.folder)) < self.times:
            os.close(os.open(f"{self.folder}/{len(os.listdir(self.folder))}", os.O_CREAT | os.O_EXCL))
            self.strike()

    def backward(self, n, dy, dx, now):
        if dx is not None:
            np.copyto(dx[:n], dy[:n])
            if self.here(now) and self.fault == "backward":
                dx[0] = np.inf

    def here(self, now):
        return (now[clock.STEP], now[clock.FIRST]) == (self.step, self.first)

    def strike(self):
        if self.fault == "segfault":
            ctypes.string_at(0)
        elif self.fault == "loop":
            while True:
                pass
        elif self.fault == "exit":
            os._exit(7)
        elif self.fault == "memory":
            raise MemoryError("not a byte more")
        elif self.fault == "raise":
            raise ValueError("of all things")
        else:
            os.kill(os.getpid(), getattr(signal, self.fault))
