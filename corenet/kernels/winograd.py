"""Winograd's convolution F(m×m, r×r): r×r filters, stride 1, with fewer multiplications (Lavin & Gray 2016).

    forward            Y = Aᵀ[ (G w Gᵀ) ⊙ (Bᵀ X B) ]A        X: s×s patch of the image, Y: m×m patch of the output
    backward_data      the same, of dy with the filter turned round: a patch for every m×m pixels of dx; or,
       …_adjoint       dX += B[ (A dY Aᵀ) ⊙ (G w Gᵀ)ᵀ ]Bᵀ    a patch for every m×m pixels of dy; they overlap in dx
    backward_weights   dw = Gᵀ[ Σ (Bᵀ X B) ⊙ (A dY Aᵀ) ]G    summed over all patches

s = m + r − 1. ⊙ is s² matrix products, one for each point of the transformed patch: (patches × C)·(C × K), in place of
m²·r². They run on the register tile; the transforms, on 16 channels at a time (`patch.py`).

                 block of patches, for one thread, stays in its cache
    image ──Bᵀ·B──▶ V (s², patches, C) ──·U──▶ M (s², patches, K) ──Aᵀ·A──▶ output

Here is what all members of the family share: the definitions, and what their nests are made of. A member, such as
F(4×4, 3×3) in `winograd_4x3.py`, has points of interpolation. From them follow these transforms, which it hands to the
functions below, each beside its transpose:

    data      Bᵀ: s values of an image to s points          adjoint   B:  s points to s gradients of an image
    filter    G:  r values of a filter to s points          weight    Gᵀ: s points to r values of a filter
    output    Aᵀ: s points to m values                      gradient  A:  m gradients of an output to s points
"""

import numpy as np

from .operation import device
from .patch import transform
from .tile import LANES, ROWS, evenly, near_tile, tile

BLOCK = 32  # patches that go through together
TOGETHER = 4 * BLOCK  # patches of whole images, about, that one turn of a thread's loop adds to these
PART = 4  # patches, or points, that one turn of a thread's loop does

# Definitions.


def _transformed(patch, image, rows, columns, step):
    """Patches of images (n, H, W, C) that are large enough, some pixels apart, transformed: (points, points,
    n·rows·columns, C)."""
    size = patch.size
    windows = np.lib.stride_tricks.sliding_window_view(image, (size, size), axis=(1, 2))[:, ::step, ::step]
    patches = np.moveaxis(windows[:, :rows, :columns], (4, 5), (0, 1))
    return transform(patch.line, patches.reshape(size, size, -1, image.shape[3]))


def _enlarged(x, top, left, height, width):
    """Images with zeros before them (without their beginning, where top or left is negative), and behind them up to
    that size."""
    x, top, left = x[:, max(0, -top) :, max(0, -left) :], max(0, top), max(0, left)
    n, H, W, C = x.shape
    large = np.zeros((n, max(height, H + top), max(width, W + left), C), x.dtype)
    large[:, top : top + H, left : left + W] = x
    return large


def convolution(data, filters, output, x, w, b, y, top, left):
    """Convolve images x (n, H, W, C) with w (r, r, C, K), add b (shape (0,): no bias), into y (n, P, Q, K).

    y is the output of the image with `top` rows and `left` columns of zeros before it, and as many behind it as it
    takes.
    """
    (n, P, Q, K), m, overlap = y.shape, output.other, filters.size - 1
    rows, columns = -(-P // m), -(-Q // m)
    image = _enlarged(x, top, left, m * rows + overlap, m * columns + overlap)
    points = _transformed(data, image, rows, columns, m) @ transform(filters.line, w)
    patches = transform(output.line, points).reshape(m, m, n, rows, columns, K)
    whole = patches.transpose(2, 3, 0, 4, 1, 5).reshape(n, m * rows, m * columns, K)
    y[...] = whole[:, :P, :Q] + (b if b.size else 0)


def weight_gradient(data, gradient, weight, x, dy, dw, top, left):
    """Gradient dw (r, r, C, K) from x and dy; top and left as for the convolution."""
    (P, Q), m, overlap = dy.shape[1:3], gradient.size, weight.other - 1
    rows, columns = -(-P // m), -(-Q // m)
    image = _enlarged(x, top, left, m * rows + overlap, m * columns + overlap)
    points = _transformed(data, image, rows, columns, m)
    gradients = _transformed(gradient, _enlarged(dy, 0, 0, m * rows, m * columns), rows, columns, m)
    dw[...] = transform(weight.line, points.swapaxes(2, 3) @ gradients)


def data_gradient(gradient, filters, adjoint, dy, w, dx, top, left):
    """Gradient dx (n, H, W, C) from dy (n, P, Q, K), patch by patch of dy; top and left as for the convolution."""
    (n, P, Q), (H, W, C), m, size = dy.shape[:3], dx.shape[1:], gradient.size, adjoint.size
    rows, columns = -(-P // m), -(-Q // m)
    gradients = _transformed(gradient, _enlarged(dy, 0, 0, m * rows, m * columns), rows, columns, m)
    points = gradients @ transform(filters.line, w).swapaxes(2, 3)
    patches = transform(adjoint.line, points).reshape(size, size, n, rows, columns, C)
    image = np.zeros((n, m * rows + size - m, m * columns + size - m, C), dx.dtype)
    for p, q in np.ndindex(rows, columns):
        image[:, m * p : m * p + size, m * q : m * q + size] += np.moveaxis(patches[:, :, :, p, q], 2, 0)
    dx[...] = _enlarged(image, -top, -left, H, W)[:, :H, :W]


# What nests are made of. What is called in an inner loop does several patches or points, and no divisions: calls cost.


@device
def places_of(n, y, outputs):
    """Where the patches of n outputs y (n, P, Q, K) begin: (patches, 3), each an image, a row and a column."""
    P, Q = y.shape[1], y.shape[2]
    places = np.empty((n * ((P + outputs - 1) // outputs) * ((Q + outputs - 1) // outputs), 3), np.int64)
    t = 0
    for i in range(n):
        for p in range(0, P, outputs):
            for q in range(0, Q, outputs):
                places[t, 0], places[t, 1], places[t, 2] = i, p, q
                t += 1
    return places


@device
def _step(count):
    """Distance of neighbouring points in scratch: never a power of two, which would have all of them share a few lines
    of the cache."""
    return count + LANES


def filters_work(outputs, filter_size, C, K) -> int:
    """Floats of scratch of all but the weights' gradient: the points of filters, and these with channels swapped."""
    size = outputs + filter_size - 1
    return size * size * _step(C * K) + filter_size * filter_size * C * K


def weights_work(outputs, filter_size, C, K) -> int:
    """Floats of scratch of the weights' gradient: the points of a block of x and of dy, and of the weights."""
    size = outputs + filter_size - 1
    return size * size * (_step(BLOCK * C) + _step(BLOCK * K) + _step(C * K))


@device
def swapped(w, turn, work):
    """The filter (r, r, K, C) of the data gradient: w (r, r, C, K), upside down if `turn`, at the end of `work`."""
    R, S, C, K = w.shape
    result = work[work.shape[0] - R * S * C * K :].reshape((R, S, K, C))
    for r in range(R):
        for s in range(S):
            into = result[R - 1 - r, S - 1 - s] if turn else result[r, s]
            for c in range(C):
                for k in range(K):
                    into[k, c] = w[r, s, c, k]
    return result


@device
def filter_points(transform_filter, w, size, work):
    """u: for each point a matrix (C, K), from w (r, r, C, K); it is the beginning of `work`."""
    R, C, K = w.shape[0], w.shape[2], w.shape[3]
    u, flat, step = work[: size * size * _step(C * K)], w.reshape(-1), _step(C * K)
    for c in range(C):
        for k in range(0, K, LANES):
            transform_filter(flat, c * K + k, R * C * K, C * K, 0, R, 0, R,
                             u, c * K + k, size * step, step, 0, size, 0, size,
                             min(LANES, K - k), flat[:0], 0)  # fmt: skip
    return u


@device
def _inside(start, extent, size):
    """Which of `size` places from `start` on lie in 0 … extent: the first, and the one behind the last."""
    first = min(max(0, -start), size)
    return first, max(first, min(size, extent - start))


@device
def _tables(rows, a_step, c_step):
    """What the tile is told of matrices with some rows: where these begin in a and c, a tap, zeros to start from."""
    a_row, c_row = np.empty(rows + ROWS, np.int64), np.empty(rows + ROWS, np.int64)
    for row in range(a_row.shape[0]):  # those behind the last one are read, but not used
        a_row[row], c_row[row] = min(row, rows - 1) * a_step, min(row, rows - 1) * c_step
    return a_row, c_row, np.zeros(1, np.int64), np.zeros(LANES, np.float32)


@device
def data_points(transform_data, places, first, begin, end, size, x, top, left, v):
    """Patches begin … end, of the block from `first` on, in v: for each point a matrix (BLOCK, C), from the pixels of x
    under a patch of y."""
    H, W, C = x.shape[1], x.shape[2], x.shape[3]
    flat, step = x.reshape(-1), _step(BLOCK * C)
    for number in range(begin, end):
        t, i, h, s = number - first, places[number, 0], places[number, 1] - top, places[number, 2] - left
        above, below = _inside(h, H, size)
        before, behind = _inside(s, W, size)
        for c in range(0, C, LANES):
            transform_data(flat, ((i * H + h) * W + s) * C + c, W * C, C, above, below, before, behind,
                           v, t * C + c, size * step, step, 0, size, 0, size,
                           min(LANES, C - c), flat[:0], 0)  # fmt: skip


@device
def _block_memory(size, C, K):
    """The points of a block before the products, and behind: one piece, which malloc keeps for the next block."""
    middle = size * size * _step(BLOCK * C)
    memory = np.empty(middle + size * size * _step(BLOCK * K), np.float32)
    return memory[:middle], memory[middle:]


@device
def products(count, size, C, K, v, u, m):
    """m: for each point the product of the matrix (BLOCK, C) in v, of which `count` rows are there, and (C, K) in u."""
    v_step, u_step, m_step = _step(BLOCK * C), _step(C * K), _step(BLOCK * K)
    a_row, c_row, tap, zeros = _tables(count, C, K)
    for point in range(size * size):
        for t in range(0, count, ROWS):
            for k in range(0, K, LANES):
                tile(v, point * v_step, a_row, t, min(ROWS, count - t), tap, tap, C, 1,
                     u, point * u_step + k, K, m, point * m_step + k, c_row, min(LANES, K - k), zeros, 0)  # fmt: skip


@device
def convolve(transform_data, transform_output, places, block, outputs, size, x, u, b, y, top, left):
    """One block of patches of images x (n, H, W, C), to y (n, P, Q, K)."""
    C, P, Q, K = x.shape[3], y.shape[1], y.shape[2], y.shape[3]
    first = block * BLOCK
    count = min(BLOCK, places.shape[0] - first)
    (v, m), m_step = _block_memory(size, C, K), _step(BLOCK * K)
    data_points(transform_data, places, first, first, first + count, size, x, top, left, v)
    products(count, size, C, K, v, u, m)
    flat = y.reshape(-1)
    for t in range(count):
        i, p, q = places[first + t, 0], places[first + t, 1], places[first + t, 2]
        for k in range(0, K, LANES):
            transform_output(m, t * K + k, size * m_step, m_step, 0, size, 0, size,
                             flat, ((i * P + p) * Q + q) * K + k, Q * K, K, 0, min(outputs, P - p), 0,
                             min(outputs, Q - q), min(LANES, K - k), b, k)  # fmt: skip


@device
def gradient_points(transform_gradient, places, first, begin, end, outputs, size, dy, g):
    """The same patches in g: for each point a matrix (BLOCK, K), from a patch of dy."""
    P, Q, K = dy.shape[1], dy.shape[2], dy.shape[3]
    flat, step = dy.reshape(-1), _step(BLOCK * K)
    for number in range(begin, end):
        t, i, p, q = number - first, places[number, 0], places[number, 1], places[number, 2]
        rows, columns = min(outputs, P - p), min(outputs, Q - q)
        for k in range(0, K, LANES):
            transform_gradient(flat, ((i * P + p) * Q + q) * K + k, Q * K, K, 0, rows, 0, columns,
                               g, t * K + k, size * step, step, 0, size, 0, size,
                               min(LANES, K - k), flat[:0], 0)  # fmt: skip


@device
def patches_together(n, places):
    """How many patches one thread adds to dx, where they overlap: those of whole images, enough for full blocks."""
    of_image = places.shape[0] // n
    return of_image * evenly(n, max(1, TOGETHER // of_image))


@device
def spread(transform_gradient, transform_adjoint, places, group, together, outputs, size, dy, u, dx, top, left):
    """One group of patches of dy, those of whole images, added one after the other to dx (n, H, W, C)."""
    H, W, C, K = dx.shape[1], dx.shape[2], dx.shape[3], dy.shape[3]
    (g, m), m_step, flat = _block_memory(size, K, C), _step(BLOCK * C), dx.reshape(-1)
    begin, end = group * together, min(places.shape[0], group * together + together)
    for first in range(begin, end, BLOCK):
        count = min(BLOCK, end - first)
        gradient_points(transform_gradient, places, first, first, first + count, outputs, size, dy, g)
        products(count, size, K, C, g, u, m)
        for t in range(count):
            i, h, s = places[first + t, 0], places[first + t, 1] - top, places[first + t, 2] - left
            if h == -top and s == -left:  # the first patch of an image
                flat[i * H * W * C : (i + 1) * H * W * C] = 0
            above, below = _inside(h, H, size)
            before, behind = _inside(s, W, size)
            for c in range(0, C, LANES):
                transform_adjoint(m, t * C + c, size * m_step, m_step, 0, size, 0, size,
                                  flat, ((i * H + h) * W + s) * C + c, W * C, C, above, below, before, behind,
                                  min(LANES, C - c), flat[:0], 0)  # fmt: skip


@device
def gradient_memory(size, C, K, work):
    """What `add_products` works with: the points v of x, g of dy and du of the weights, and tables for the tile."""
    v_end = size * size * _step(BLOCK * C)
    g_end = v_end + size * size * _step(BLOCK * K)
    return work[:v_end], work[v_end:g_end], work[g_end:], _tables(C, 1, K)


@device
def add_products(begin, end, first, count, v, g, du, C, K, tables):
    """Add to du, for points begin … end, the products of the C columns of v with the K of g over `count` patches."""
    v_step, g_step, u_step = _step(BLOCK * C), _step(BLOCK * K), _step(C * K)
    a_row, c_row, tap, zeros = tables
    start = zeros[:0] if first else zeros  # the first block sets du, others add to it
    for point in range(begin, end):
        for c in range(0, C, ROWS):
            for k in range(0, K, LANES):
                near_tile(v, point * v_step, a_row, c, min(ROWS, C - c), tap, tap, count, C, g, point * g_step + k, K,
                          du, point * u_step + k, c_row, min(LANES, K - k), start, 0)  # fmt: skip


@device
def weights_from(transform_weight, c, size, du, dw):
    """The gradients dw (r, r, C, K) of input channel c, from the points du."""
    R, C, K = dw.shape[0], dw.shape[2], dw.shape[3]
    flat, step = dw.reshape(-1), _step(C * K)
    for k in range(0, K, LANES):
        transform_weight(du, c * K + k, size * step, step, 0, size, 0, size,
                         flat, c * K + k, R * C * K, C * K, 0, R, 0, R, min(LANES, K - k), flat[:0], 0)  # fmt: skip
