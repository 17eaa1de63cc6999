"""The dense layer's products with operands of bfloat16: `linear.py` on the tile of `bf16_tile.py`.

Pairs are made of neighbouring inputs (forward), outputs (backward_data) or samples (backward_weights). w is rounded
where it is used, a block at a time, so that it is read from far away once, and no copy is written there.
"""

import numpy as np

from . import linear
from .bf16_tile import HEIGHT, WIDE, bf16_tile
from .bfloat16 import pair_rows, round_row, rounded
from .linear import ROW_BLOCK
from .operation import operation, prange
from .tile import LANES, padded

COLUMNS, STEPS = 128, 128  # of w, rounded together: they stay in the nearest cache
NEAR_ROWS = 4 * HEIGHT  # rows of w that are rounded together for a data gradient


@operation
def forward(n, x, w, b, y, work):
    """`linear.forward` of x and w rounded to bfloat16; `work` has the size of x, in uint16."""
    linear.forward(n, rounded(x[:n]), rounded(w), b, y)


@forward.nest
def forward_nest(n, x, w, b, y, work):
    inputs, outputs = w.shape
    a_row = np.empty(n + HEIGHT, np.int64)
    c_row = np.empty(n + HEIGHT, np.int64)
    for m in range(a_row.shape[0]):
        a_row[m] = min(m, n - 1) * inputs
        c_row[m] = min(m, n - 1) * outputs
    one_tap = np.zeros(1, np.int64)
    flat_x, flat_w, flat_y = x.reshape(-1), w.reshape(-1), y.reshape(-1)
    round_row(flat_x, 0, work, 0, n * inputs)
    begin, go_on = (b if b.shape[0] > 0 else np.zeros(outputs, np.float32)), np.empty(0, np.float32)
    for block in prange((outputs + COLUMNS - 1) // COLUMNS):
        left = block * COLUMNS
        columns = min(COLUMNS, outputs - left)
        pairs = np.empty(STEPS * COLUMNS, np.uint16)
        for start in range(0, inputs, STEPS):
            steps = min(STEPS, inputs - start)
            for step in range(0, steps, 2):
                even = (start + step) * outputs + left
                odd = even + outputs if step + 1 < steps else -1
                pair_rows(flat_w, even, odd, pairs, step * columns, columns)
            for k in range(0, columns, WIDE):
                for m in range(0, n, HEIGHT):
                    bf16_tile(work, start, a_row, m, min(HEIGHT, n - m), one_tap, one_tap, steps, 2,
                              pairs, 2 * k, 2 * columns, flat_y, left + k, c_row, min(WIDE, columns - k),
                              go_on if start else begin, left + k)  # fmt: skip


def backward_data_work(chunk, inputs, outputs) -> int:
    """Scratch of backward_data in uint16: dy, and dyᵀ in pairs, samples padded to whole vectors."""
    return padded(outputs, 2) * (padded(chunk, LANES) + 1)


@operation
def backward_data(n, dy, w, dx, work):
    """`linear.backward_data` of dy and w rounded to bfloat16; `work`, see backward_data_work."""
    linear.backward_data(n, rounded(dy[:n]), rounded(w), dx, None)


@backward_data.nest
def backward_data_nest(n, dy, w, dx, work):
    # dxᵀ = w·dyᵀ, as in linear.py, some rows of it at a time.
    inputs, outputs = w.shape
    samples, width = padded(n, LANES), padded(outputs, 2)
    dy_turned, row = work[: width * samples], work[width * samples : width * (samples + 1)]
    dy_turned[:] = 0
    row[width - 1] = 0  # the pair of an odd last output
    flat_dy, flat_w = dy.reshape(-1), w.reshape(-1)
    for i in range(n):
        round_row(flat_dy, i * outputs, row, 0, outputs)
        for k in range(width):
            dy_turned[(k // 2 * samples + i) * 2 + k % 2] = row[k]
    a_row, c_row = np.arange(NEAR_ROWS) * outputs, np.arange(NEAR_ROWS) * samples
    one_tap, zeros = np.zeros(1, np.int64), np.zeros(WIDE, np.float32)
    for block in prange((inputs + NEAR_ROWS - 1) // NEAR_ROWS):
        first = block * NEAR_ROWS
        rows = min(NEAR_ROWS, inputs - first)
        near_w, dx_turned = np.empty(NEAR_ROWS * outputs, np.uint16), np.empty(NEAR_ROWS * samples, np.float32)
        round_row(flat_w, first * outputs, near_w, 0, rows * outputs)
        for m in range(0, rows, HEIGHT):
            for i in range(0, samples, WIDE):
                bf16_tile(near_w, 0, a_row, m, min(HEIGHT, rows - m), one_tap, one_tap, outputs, 2,
                          dy_turned, 2 * i, 2 * samples, dx_turned, i, c_row, min(WIDE, samples - i),
                          zeros, 0)  # fmt: skip
        for i in range(n):
            for m in range(rows):
                dx[i, first + m] = dx_turned[m * samples + i]


@operation
def backward_weights(n, x, dy, dw, low, high):
    """`linear.backward_weights` of x and dy rounded to bfloat16."""
    linear.backward_weights(n, rounded(x[:n]), rounded(dy[:n]), dw, low, high)


@backward_weights.nest
def backward_weights_nest(n, x, dy, dw, low, high):
    inputs, outputs = dw.shape
    flat_x, flat_dy, flat_dw = x.reshape(-1), dy.reshape(-1), dw.reshape(-1)
    pairs = (n + 1) // 2
    dy_pairs = np.empty(pairs * 2 * outputs, np.uint16)
    for pair in range(pairs):
        even = 2 * pair * outputs
        pair_rows(flat_dy, even, even + outputs if 2 * pair + 1 < n else -1, dy_pairs, pair * 2 * outputs, outputs)
    a_row = np.arange(ROW_BLOCK + HEIGHT) * 2
    c_row = np.arange(ROW_BLOCK + HEIGHT) * outputs
    one_tap, zeros = np.zeros(1, np.int64), np.zeros(WIDE, np.float32)
    for block in prange((high - low + ROW_BLOCK - 1) // ROW_BLOCK):
        first = low + block * ROW_BLOCK
        rows = min(ROW_BLOCK, high - first)
        x_pairs = np.zeros(pairs * 2 * ROW_BLOCK + 2 * HEIGHT, np.uint16)
        for pair in range(pairs):
            even = 2 * pair * inputs + first
            odd = even + inputs if 2 * pair + 1 < n else -1
            pair_rows(flat_x, even, odd, x_pairs, pair * 2 * ROW_BLOCK, rows)
        for k in range(0, outputs, WIDE):
            for m in range(0, rows, HEIGHT):
                bf16_tile(x_pairs, 0, a_row, m, min(HEIGHT, rows - m), one_tap, one_tap, n, 2 * ROW_BLOCK,
                          dy_pairs, 2 * k, 2 * outputs, flat_dw, first * outputs + k, c_row,
                          min(WIDE, outputs - k), zeros, 0)  # fmt: skip
