"""Geometries of windows on images, and products, each checked element by element against the float64 definition.

Every combination of kernel 1–5, stride 1–4 and padding 0–3 occurs along the height and along the width of images, and
along the length of sequences, with sizes that the stride does not divide, single channels and single samples; dilations
1–3, groups (1, 2, one per channel) and volumes are mixed in at random. `run(operation, args)` is what is tested; bounds
are those of one chain of roundings: 2·√terms·ε·Σ|a·b|, for each element its own sum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from guarded import run_guarded

from corenet.kernels import bias, conv, depthwise, linear, pool
from corenet.kernels.operation import Operation

Run = Callable[[Operation, list], None]
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Geometry:
    """A window on images: n of `chunk` samples (*size, C), K output channels; triples are (depth, height, width)."""

    chunk: int
    n: int
    size: Triple
    C: int
    K: int
    kernel: Triple
    stride: Triple
    padding: Triple
    dilation: Triple = (1, 1, 1)
    groups: int = 1
    ceil: bool = False

    @property
    def output(self) -> Triple:
        counts = []
        for size, window, step, pad, d in zip(
            self.size, self.kernel, self.stride, self.padding, self.dilation, strict=True
        ):
            room = size + 2 * pad - d * (window - 1) - 1
            extra = self.ceil and room % step > 0 and (room // step + 1) * step < size + pad
            counts.append(room // step + 1 + extra)
        O, P, Q = counts  # noqa: E741
        return O, P, Q

    def __str__(self) -> str:
        size, kernel, stride, padding, dilation = (
            "x".join(map(str, p)) for p in (self.size, self.kernel, self.stride, self.padding, self.dilation)
        )
        end = f" d{dilation} g{self.groups}{' ceil' if self.ceil else ''}"
        return f"{self.n}of{self.chunk} {size}x{self.C}-{self.K} k{kernel} s{stride} p{padding}{end}"


NO_AXIS = 1, 1, 0, 1  # kernel, stride, padding, dilation of an axis that there is not


def geometries(seed: int = 0, pooling: bool = False) -> list[Geometry]:
    """Each (kernel, stride, padding) along the height of an image, paired at random with each along the width, the same
    for volumes, and each along sequences."""  # fmt: skip
    rng = np.random.default_rng(seed)
    axis = [(k, s, p) for k, s, p in product(range(1, 6), range(1, 5), range(4)) if not pooling or 2 * p <= k]

    def dilated(sides) -> list:
        return [(*side, 1 if pooling else int(rng.integers(1, 4))) for side in sides]

    found = []
    for dims in (2, 3, 1):
        depths = dilated((k, s, p) for k, s, p in rng.permutation(axis).tolist())
        heights, widths = dilated(axis), dilated(rng.permutation(axis).tolist())
        for number, (depth, height, width) in enumerate(zip(depths, heights, widths, strict=True)):
            sides = [depth if dims == 3 else NO_AXIS, height if dims > 1 else NO_AXIS, width]
            size = tuple(1 if side is NO_AXIS else _size(rng, *side) for side in sides)
            kernel, stride, padding, dilation = zip(*sides, strict=True)
            chunk = int(rng.integers(1, 4))
            n = int(rng.integers(1, chunk + 1))
            groups, C, K = 1, int(rng.choice([1, 2, 3, 8, 16, 17])), int(rng.choice([1, 3, 15, 16, 17, 33]))
            if not pooling and number % 2:
                groups = int(rng.choice([2, C])) if C > 1 else 2
                C = groups if groups == C else 2 * C
                K = groups * int(rng.choice([1, 1, 2, 9]))
            ceil = pooling and bool(number % 2)
            found.append(Geometry(chunk, n, size, C, K, kernel, stride, padding, dilation, groups, ceil))
    return found


def _size(rng, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """A size with a few positions of the window, often with a remainder."""
    extent = dilation * (kernel - 1) + 1
    size = int(rng.integers(0, 4)) * stride + extent + int(rng.integers(0, stride)) - 2 * padding
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


def _samples(rng, shape: tuple, n: int, dtype, border: Triple = (0, 0, 0)) -> np.ndarray:
    """Random samples, NaN beyond the n-th: what lies there may not be read."""
    array = np.pad(rng.standard_normal(shape), ((0, 0), *((b, b) for b in border), (0, 0))).astype(dtype)
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
    """Forward (with and without bias) and both gradients, with one filter per channel also directly; the results."""
    rng = np.random.default_rng(hash(g) % 2**32)
    n, places = g.n, prod(g.kernel)
    x = _samples(rng, (g.chunk, *g.size, g.C), n, dtype, g.padding)
    dy = _samples(rng, (g.chunk, *g.output, g.K), n, dtype)
    w = rng.standard_normal((*g.kernel, g.C // g.groups, g.K)).astype(dtype)
    b, none = rng.standard_normal(g.K).astype(dtype), np.empty(0, dtype)
    y, dx, dw = np.empty_like(dy), np.empty((g.chunk, *g.size, g.C), dtype), np.empty_like(w)
    how, label, results = [g.stride, g.dilation, g.groups], str(g), []
    for kernels in (conv, depthwise) if 1 < g.groups == g.C == g.K else (conv,):
        size = kernels.backward_data_work(dx.shape, dy.shape, w.shape, g.stride, g.padding, g.dilation)
        terms = places * g.C // g.groups
        for one in (b, none):
            results += _checked(run, kernels.forward, [n, x, w, one, y, *how], [4], terms, [4], label)
        args, terms = [n, x, dy, dw, *how], n * prod(g.output)
        results += _checked(run, kernels.backward_weights, args, [3], terms, [], label)
        args = [n, dy, w, dx, g.stride, g.padding, g.dilation, g.groups, np.empty(size, dtype)]
        terms = places * g.K // g.groups
        results += _checked(run, kernels.backward_data, args, [3], terms, [3], label, scratch=(8,))
    return results


def check_pooling(g: Geometry, run: Run, dtype=np.float32) -> None:
    """Both poolings and their gradients."""
    rng = np.random.default_rng(hash(g) % 2**32)
    n, terms, label = g.n, prod(g.kernel), str(g)
    window = [g.kernel, g.stride, g.padding]
    x = _samples(rng, (g.chunk, *g.size, g.C), n, dtype).round(1)  # ties on purpose
    dy = _samples(rng, (g.chunk, *g.output, g.C), n, dtype)
    y, dx, which = np.empty_like(dy), np.empty_like(x), np.empty(dy.shape, np.int32)
    for count_padding in (True, False):
        _checked(run, pool.average_forward, [n, x, y, *window, count_padding], [2], terms, [2], label)
        _checked(run, pool.average_backward, [n, dy, dx, *window, count_padding], [2], terms, [2], label)
    args = [n, x, y, which, *window]
    _, _, got, won, *_ = run_guarded(lambda *a: run(pool.max_forward, list(a)), args, [2, 3], [2, 3])
    pool.max_forward(*args)
    assert (got[:n] == y[:n]).all() and (won[:n] == which[:n]).all(), f"pool.max_forward {label}"
    which[n:] = -1
    _checked(run, pool.max_backward, [n, dy, which, dx, *window], [3], terms, [3], label)


# One filter per channel, with more pixels, channels and filter elements than go together.
DEPTHWISE = [
    Geometry(1, 1, (1, 3, 21), 33, 33, (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1), 33),
    Geometry(2, 1, (1, 5, 23), 16, 16, (1, 5, 5), (1, 1, 2), (0, 2, 2), (1, 1, 1), 16),
    Geometry(1, 1, (3, 4, 30), 12, 12, (2, 2, 3), (1, 2, 1), (1, 0, 2), (1, 1, 2), 12),
    Geometry(2, 2, (1, 1, 11), 40, 40, (1, 1, 3), (1, 1, 3), (0, 0, 1), (1, 1, 2), 40),
    Geometry(1, 1, (1, 6, 6), 3, 3, (1, 4, 3), (1, 3, 2), (0, 3, 2), (1, 1, 3), 3),
]
PRODUCTS = [
    (1, 1, 1), (3, 7, 15), (17, 257, 16), (5, 255, 17), (16, 33, 33), (20, 513, 1), (2, 600, 3),
    # Rows that meet in the cache: of x, of dy, of both; of w.
    (7, 128, 20), (19, 67, 128), (4, 256, 128), (18, 21, 512),
]  # fmt: skip


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
    for one in (b, none):
        results += _checked(run, linear.forward, [n, x, w, one, np.empty_like(dy)], [4], inputs, [4], label)
    args = [n, dy, w, np.empty_like(x), work]
    results += _checked(run, linear.backward_data, args, [3], outputs, [3], label, scratch=(4,))
    results += _checked(run, bias.backward, [n, dy[:, None], np.empty_like(b)], [2], n, [], label)
    args = [n, x, dy, np.empty_like(w), 0, inputs]
    whole = _checked(run, linear.backward_weights, args, [3], n, [], label)[0]
    for low in range(0, inputs, linear.ROW_BLOCK):
        high = min(low + linear.ROW_BLOCK, inputs)
        args = [n, x, dy, np.full_like(w, 7), low, high]
        _, _, _, shard, *_ = run_guarded(lambda *a: run(linear.backward_weights, list(a)), args, [3], [])
        assert (shard[low:high] == whole[low:high]).all(), f"{label}: rows {low} … {high} depend on the shard"
        assert (np.delete(shard, slice(low, high), 0) == 7).all(), f"{label}: rows of another shard were written"
    return [*results, whole]
