"""Two-dimensional convolution (cross-correlation, as every deep-learning library means it) and its two gradients.

    forward            y[i,p,q,k]  = b[k] + Σ_{r,s,c}  x[i, p·sh+r, q·sw+s, c] · w[r,s,c,k]
    backward_weights   dw[r,s,c,k] =        Σ_{i,p,q}  x[i, p·sh+r, q·sw+s, c] · dy[i,p,q,k]       db[k] = Σ dy
    backward_data      dx[i,h,w,c] =        Σ_{r,s,k}  dy[i,p,q,k] · w[r,s,c,k]    where p·sh+r = h+ph, q·sw+s = w+pw

Layouts: x (chunk, H, W, C) and already padded, w (R, S, C, K), y (chunk, P, Q, K), b (K,) or (0,) for no bias. `dx` is
the gradient of the image *before* padding, so backward_data is told the padding (ph, pw).

All three run on the tile of `tile.py`; they differ in what its rows, taps and steps stand for:

                      rows              taps                step l along          tile's b
    forward           output pixels     filter rows r       (s, c), contiguous    w
    backward_weights  (r, s, c)         output rows p       q                     dy
    backward_data     pixels of dx      filter rows r       (s, k), contiguous    w, turned round
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .operation import operation, prange
from .tile import LANES, ROWS, tile


def _windows(x, w_shape, stride):
    """Views of x (n, H, W, C) under each filter position: (n, P, Q, C, R, S)."""
    return sliding_window_view(x, w_shape[:2], axis=(1, 2))[:, :: stride[0], :: stride[1]]


@operation
def forward(n, x, w, b, y, stride):
    """Convolve the first n padded images of x with w, add b (shape (0,): no bias), into y."""
    y[:n] = np.tensordot(_windows(x[:n], w.shape, stride), w, axes=([4, 5, 3], [0, 1, 2]))
    if b.size:
        y[:n] += b


@forward.nest
def forward_nest(n, x, w, b, y, stride):
    H, W, C = x.shape[1], x.shape[2], x.shape[3]
    R, S, K = w.shape[0], w.shape[1], w.shape[3]
    P, Q = y.shape[1], y.shape[2]
    pixels = P * Q
    a_row = np.empty(pixels + ROWS, np.int64)
    c_row = np.empty(pixels + ROWS, np.int64)
    for m in range(a_row.shape[0]):
        pixel = min(m, pixels - 1)
        a_row[m] = (pixel // Q * stride[0] * W + pixel % Q * stride[1]) * C
        c_row[m] = pixel * K
    taps = np.arange(R)
    a_tap = taps * (W * C)
    b_tap = taps * (S * C * K)
    flat_x, flat_w, flat_y = x.reshape(-1), w.reshape(-1), y.reshape(-1)
    for i in prange(n):
        for m in range(0, pixels, ROWS):
            rows = min(ROWS, pixels - m)
            start = i * pixels * K + m * K
            for row in range(rows):
                for k in range(K):
                    flat_y[start + row * K + k] = b[k] if b.shape[0] > 0 else np.float32(0)
            for k in range(0, K, LANES):
                tile(flat_x, i * H * W * C, a_row, m, rows, a_tap, b_tap, S * C, 1,
                     flat_w, k, K, flat_y, i * pixels * K + k, c_row, min(LANES, K - k))  # fmt: skip


@operation
def backward_weights(n, x, dy, dw, db, stride):
    """Gradients dw (R, S, C, K) and db (K,) or (0,) of the first n samples, from padded images x and dy."""
    gradient = np.tensordot(_windows(x[:n], dw.shape, stride), dy[:n], axes=([0, 1, 2], [0, 1, 2]))
    dw[:] = gradient.transpose(1, 2, 0, 3)
    if db.size:
        db[:] = dy[:n].sum(axis=(0, 1, 2))


@backward_weights.nest
def backward_weights_nest(n, x, dy, dw, db, stride):
    H, W, C = x.shape[1], x.shape[2], x.shape[3]
    S, K = dw.shape[1], dw.shape[3]
    P, Q = dy.shape[1], dy.shape[2]
    elements = dw.shape[0] * S * C
    a_row = np.empty(elements + ROWS, np.int64)
    c_row = np.empty(elements + ROWS, np.int64)
    for m in range(a_row.shape[0]):
        element = min(m, elements - 1)
        r, s, c = element // (S * C), element // C % S, element % C
        a_row[m] = (r * W + s) * C + c
        c_row[m] = element * K
    taps = np.arange(P)
    a_tap = taps * (stride[0] * W * C)
    b_tap = taps * (Q * K)
    flat_x, flat_dy, flat_dw = x.reshape(-1), dy.reshape(-1), dw.reshape(-1)
    for block in prange((elements + ROWS - 1) // ROWS):
        m = block * ROWS
        rows = min(ROWS, elements - m)
        for j in range(m * K, (m + rows) * K):
            flat_dw[j] = 0
        for i in range(n):
            for k in range(0, K, LANES):
                tile(flat_x, i * H * W * C, a_row, m, rows, a_tap, b_tap, Q, stride[1] * C,
                     flat_dy, i * P * Q * K + k, K, flat_dw, k, c_row, min(LANES, K - k))  # fmt: skip
    if db.shape[0] > 0:
        db[:] = 0
        image_sum = np.empty_like(db)
        for i in range(n):  # summed image by image: shorter chains of roundings
            image_sum[:] = 0
            for pixel in range(i * P * Q, (i + 1) * P * Q):
                for k in range(K):
                    image_sum[k] += flat_dy[pixel * K + k]
            for k in range(K):
                db[k] += image_sum[k]


def backward_data_work(dx_shape, w_shape, stride, padding) -> int:
    """Floats of scratch that backward_data needs: a chunk of dy with a border of zeros, and the turned filters."""
    height, width = (
        (filter_size - 1) // step + max((size - 1 + pad) // step + 1, (size + 2 * pad - filter_size) // step + 1)
        for size, filter_size, step, pad in zip(dx_shape[1:3], w_shape[:2], stride, padding, strict=True)
    )
    R, S, C, K = w_shape
    return dx_shape[0] * height * width * K + R * S * K * C


@operation
def backward_data(n, dy, w, dx, stride, padding, work):
    """Gradient dx of the first n images before padding, from dy and w; `work` is scratch, see backward_data_work."""
    H, W, C = dx.shape[1:]
    P, Q = dy.shape[1:3]
    image = np.zeros((n, H + 2 * padding[0], W + 2 * padding[1], C), dx.dtype)
    for r in range(w.shape[0]):
        for s in range(w.shape[1]):
            rows = slice(r, r + P * stride[0], stride[0])
            columns = slice(s, s + Q * stride[1], stride[1])
            image[:, rows, columns] += dy[:n] @ w[r, s].T
    dx[:n] = image[:, padding[0] : padding[0] + H, padding[1] : padding[1] + W]


@backward_data.nest
def backward_data_nest(n, dy, w, dx, stride, padding, work):
    # A pixel of dx meets the filter elements (r, s) of its own phase modulo the stride only, so each phase is a small
    # dense correlation of dy: nothing is multiplied by the zeros of a dilated dy.
    H, W, C = dx.shape[1], dx.shape[2], dx.shape[3]
    R, S, K = w.shape[0], w.shape[1], w.shape[3]
    P, Q = dy.shape[1], dy.shape[2]
    sh, sw, ph, pw = stride[0], stride[1], padding[0], padding[1]
    top, left = (R - 1) // sh, (S - 1) // sw
    height = top + max((H - 1 + ph) // sh + 1, P)
    width = left + max((W - 1 + pw) // sw + 1, Q)
    image = height * width * K
    bordered = work[: n * image]
    turned = work[work.shape[0] - R * S * K * C :]
    for i in prange(n):
        bordered[i * image : (i + 1) * image] = 0
        for p in range(P):
            for q in range(Q):
                start = i * image + ((p + top) * width + q + left) * K
                for k in range(K):
                    bordered[start + k] = dy[i, p, q, k]
    flat_dx = dx.reshape(-1)
    a_row = np.empty(H * W + ROWS, np.int64)
    c_row = np.empty(H * W + ROWS, np.int64)
    for phase in range(sh * sw):
        r0, s0 = phase // sw, phase % sw
        taps_r = max(0, (R - r0 + sh - 1) // sh)
        taps_s = max(0, (S - s0 + sw - 1) // sw)
        pixels = 0
        for h in range((r0 - ph) % sh, H, sh):
            for v in range((s0 - pw) % sw, W, sw):
                # The run of steps begins at the last filter column, which is the leftmost pixel of dy.
                a_row[pixels] = (((h + ph - r0) // sh + top) * width + (v + pw - s0) // sw + left - taps_s + 1) * K
                c_row[pixels] = (h * W + v) * C
                pixels += 1
        for m in range(pixels, pixels + ROWS):
            a_row[m], c_row[m] = a_row[max(0, pixels - 1)], c_row[max(0, pixels - 1)]
        for tap in range(taps_r):
            for column in range(taps_s):
                for k in range(K):
                    row = (tap * taps_s + column) * K + k
                    for c in range(C):
                        turned[row * C + c] = w[r0 + tap * sh, s0 + (taps_s - 1 - column) * sw, c, k]
        taps = np.arange(taps_r if taps_s > 0 else 0)
        a_tap = taps * (-width * K)
        b_tap = taps * (taps_s * K * C)
        for i in prange(n):
            for m in range(0, pixels, ROWS):
                rows = min(ROWS, pixels - m)
                for row in range(m, m + rows):
                    for c in range(C):
                        flat_dx[i * H * W * C + c_row[row] + c] = 0
                for c in range(0, C, LANES):
                    tile(bordered, i * image, a_row, m, rows, a_tap, b_tap, taps_s * K, 1,
                         turned, c, C, flat_dx, i * H * W * C + c, c_row, min(LANES, C - c))  # fmt: skip
