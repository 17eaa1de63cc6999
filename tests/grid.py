"""Geometries of windows on images, and products, each checked element by element against the float64 definition.

Every combination of kernel 1–5, stride 1–4 and padding 0–3 occurs along the height and along the width of images, with
sizes that the stride does not divide, single channels and single samples. `run(operation, args)` is what is tested;
bounds are those of one chain of roundings: 2·√terms·ε·Σ|a·b|, for each element its own sum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from guarded import run_guarded

from corenet.kernels import conv2d, linear, pool2d
from corenet.kernels.operation import Operation

Run = Callable[[Operation, list], None]


@dataclass(frozen=True)
class Geometry:
    """A window on images: n of `chunk` samples (H, W, C), K output channels."""

    chunk: int
    n: int
    H: int
    W: int
    C: int
    K: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    @property
    def output(self) -> tuple[int, int]:
        P, Q = (
            (size + 2 * pad - window) // step + 1
            for size, window, step, pad in zip(
                (self.H, self.W), self.kernel, self.stride, self.padding, strict=True
            )
        )  # fmt: skip
        return P, Q

    def __str__(self) -> str:
        kernel, stride, padding = ("x".join(map(str, p)) for p in (self.kernel, self.stride, self.padding))
        return f"{self.n}of{self.chunk} {self.H}x{self.W}x{self.C}-{self.K} k{kernel} s{stride} p{padding}"


def geometries(seed: int = 0, rounds: int = 2, pooling: bool = False) -> list[Geometry]:
    """`rounds` times each (kernel, stride, padding) along the height, paired at random with each along the width."""
    rng = np.random.default_rng(seed)
    axis = [(k, s, p) for k, s, p in product(range(1, 6), range(1, 5), range(4)) if not pooling or 2 * p <= k]
    found = []
    for _ in range(rounds):
        for (kh, sh, ph), (kw, sw, pw) in zip(axis, rng.permutation(axis).tolist(), strict=True):
            H, W = (_size(rng, *one) for one in ((kh, sh, ph), (kw, sw, pw)))
            chunk = int(rng.integers(1, 4))
            n = int(rng.integers(1, chunk + 1))
            C, K = int(rng.choice([1, 2, 3, 8, 16, 17])), int(rng.choice([1, 3, 15, 16, 17, 33]))
            found.append(Geometry(chunk, n, H, W, C, K, (kh, kw), (sh, sw), (ph, pw)))
    return found


def _size(rng, kernel: int, stride: int, padding: int) -> int:
    """A size with a few positions of the window, often with a remainder."""
    size = int(rng.integers(0, 4)) * stride + kernel + int(rng.integers(0, stride)) - 2 * padding
    return size if size > 0 else size + stride * (-size // stride + 1)


def bound(terms: int, dtype, absolute: np.ndarray) -> np.ndarray:
    """How far a sum of products may be from the exact one, given the sums of their absolute values."""
    return 2 * np.sqrt(terms + 4) * np.finfo(dtype).eps * absolute


def near(got: np.ndarray, exact: np.ndarray, limit: np.ndarray, what: object) -> None:
    """Fail unless every element of got is finite and within its limit of the exact one."""
    excess = np.abs(got.astype(np.float64) - exact) - limit
    if not (excess <= 0).all():
        place = np.unravel_index(np.argmax(np.where(np.isfinite(excess), excess, np.inf)), got.shape)
        raise AssertionError(f"{what}: {got[place]} at {place}, expected {exact[place]} ± {limit[place]:.2g}")


def _samples(rng, shape: tuple, n: int, dtype, border: tuple[int, int] = (0, 0)) -> np.ndarray:
    """Random samples, NaN beyond the n-th: what lies there may not be read."""
    (chunk, H, W, C), (ph, pw) = shape, border
    array = np.zeros((chunk, H + 2 * ph, W + 2 * pw, C), dtype)
    array[:, ph : ph + H, pw : pw + W] = rng.standard_normal(shape)
    array[n:] = np.nan
    return array


def _checked(run: Run, operation: Operation, args: list, outputs: list[int], terms: int, exact_args: list, what: str,
             scratch: tuple[int, ...] = ()) -> list[np.ndarray]:  # fmt: skip
    """Run guarded, compare the outputs (of the first n samples where they have them), and give them."""
    n, dtype = args[0], args[1].dtype
    written = [*outputs, *scratch]
    got = run_guarded(lambda *arrays: run(operation, list(arrays)), args, written, written)

    def definition(of: Callable) -> list:
        converted = [of(a.astype(np.float64)) if isinstance(a, np.ndarray) and a.dtype == dtype else a for a in args]
        operation.reference(*converted)
        return converted

    with np.errstate(invalid="ignore"):
        exact, absolute = definition(lambda a: a), definition(np.abs)
    results = []
    for i in outputs:
        valid = slice(n) if i in exact_args else slice(None)
        near(got[i][valid], exact[i][valid], bound(terms, dtype, absolute[i][valid]), f"{operation.name} {what}")
        if i in exact_args:
            rest = got[i][n:].reshape(-1).view(np.uint8)
            assert (rest == 0xFF).all(), f"{operation.name} {what}: written beyond sample {n}"
        results.append(got[i][valid])
    return results


def check_convolution(g: Geometry, run: Run, dtype=np.float32) -> list[np.ndarray]:
    """Forward (with and without bias) and both gradients; the results."""
    rng = np.random.default_rng(hash(g) % 2**32)
    (R, S), (P, Q), n = g.kernel, g.output, g.n
    x = _samples(rng, (g.chunk, g.H, g.W, g.C), n, dtype, g.padding)
    dy = _samples(rng, (g.chunk, P, Q, g.K), n, dtype)
    w, b = rng.standard_normal((R, S, g.C, g.K)).astype(dtype), rng.standard_normal(g.K).astype(dtype)
    y, dx = np.empty_like(dy), np.empty((g.chunk, g.H, g.W, g.C), dtype)
    dw, db, none, label = np.empty_like(w), np.empty_like(b), np.empty(0, dtype), str(g)
    work = np.empty(conv2d.backward_data_work(dx.shape, w.shape, g.stride, g.padding), dtype)
    results = []
    for bias, gradient in ((b, db), (none, none)):
        results += _checked(run, conv2d.forward, [n, x, w, bias, y, g.stride], [4], R * S * g.C, [4], label)
        args = [n, x, dy, dw, gradient, g.stride]
        results += _checked(run, conv2d.backward_weights, args, [3, 4], n * P * Q, [], label)
    args = [n, dy, w, dx, g.stride, g.padding, work]
    return results + _checked(run, conv2d.backward_data, args, [3], R * S * g.K, [3], label, scratch=(6,))


def check_pooling(g: Geometry, run: Run, dtype=np.float32) -> None:
    """Both poolings and their gradients."""
    rng = np.random.default_rng(hash(g) % 2**32)
    (R, S), (P, Q), n, label = g.kernel, g.output, g.n, str(g)
    window = [g.kernel, g.stride, g.padding]
    x = _samples(rng, (g.chunk, g.H, g.W, g.C), n, dtype).round(1)  # ties on purpose
    dy = _samples(rng, (g.chunk, P, Q, g.C), n, dtype)
    y, dx, which = np.empty_like(dy), np.empty_like(x), np.empty(dy.shape, np.uint8)
    _checked(run, pool2d.average_forward, [n, x, y, *window], [2], R * S, [2], label)
    _checked(run, pool2d.average_backward, [n, dy, dx, *window], [2], R * S, [2], label)
    args = [n, x, y, which, *window]
    _, _, got, won, *_ = run_guarded(lambda *a: run(pool2d.max_forward, list(a)), args, [2, 3], [2, 3])
    pool2d.max_forward(*args)
    assert (got[:n] == y[:n]).all() and (won[:n] == which[:n]).all(), f"pool2d.max_forward {label}"
    which[n:] = 255
    _checked(run, pool2d.max_backward, [n, dy, which, dx, *window], [3], R * S, [3], label)


PRODUCTS = [(1, 1, 1), (3, 7, 15), (17, 257, 16), (5, 255, 17), (16, 33, 33), (20, 513, 1), (2, 600, 3)]


def check_product(samples: int, inputs: int, outputs: int, run: Run, dtype=np.float32) -> list[np.ndarray]:
    """The dense layer: forward and its gradients, the weights' one by shards; the results."""
    rng = np.random.default_rng((samples, inputs, outputs))
    n = max(1, samples - 1)
    x, dy = (rng.standard_normal((samples, width)).astype(dtype) for width in (inputs, outputs))
    x[n:], dy[n:] = np.nan, np.nan
    w, b = rng.standard_normal((inputs, outputs)).astype(dtype), rng.standard_normal(outputs).astype(dtype)
    none, label = np.empty(0, dtype), f"{n} of {samples} x {inputs} x {outputs}"
    work = np.empty(linear.backward_data_work(samples, inputs, outputs), dtype)
    results = []
    for bias in (b, none):
        results += _checked(run, linear.forward, [n, x, w, bias, np.empty_like(dy)], [4], inputs, [4], label)
    args = [n, dy, w, np.empty_like(x), work]
    results += _checked(run, linear.backward_data, args, [3], outputs, [3], label, scratch=(4,))
    results += _checked(run, linear.backward_bias, [n, dy, np.empty_like(b)], [2], n, [], label)
    args = [n, x, dy, np.empty_like(w), 0, inputs]
    whole = _checked(run, linear.backward_weights, args, [3], n, [], label)[0]
    for low in range(0, inputs, linear.ROW_BLOCK):
        high = min(low + linear.ROW_BLOCK, inputs)
        args = [n, x, dy, np.full_like(w, 7), low, high]
        _, _, _, shard, *_ = run_guarded(lambda *a: run(linear.backward_weights, list(a)), args, [3], [])
        assert (shard[low:high] == whole[low:high]).all(), f"{label}: rows {low} … {high} depend on the shard"
        assert (np.delete(shard, slice(low, high), 0) == 7).all(), f"{label}: rows of another shard were written"
    return [*results, whole]
