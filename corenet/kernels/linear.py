"""The dense layer as matrix products, split for data-parallel training.

    forward            y  = x·w + b      per chunk           x (chunk, in), w (in, out), y (chunk, out)
    backward_data      dx = dy·wᵀ        per chunk
    store_rows         a chunk's x and dy become rows of batch-wide panels
    backward_weights   dw = xᵀ·dy        per batch, from the panels; each shard owner makes some rows of dw

Making dw once per batch moves batch·(in+out) floats between cores instead of chunks·in·out (Krizhevsky 2014: data
parallelism for convolutions, model parallelism for dense layers). Every element of dw is one sum over the samples in
order, so it does not matter who owns which rows.
"""

import numpy as np

from .clock import FIRST
from .operation import device, operation, prange
from .strip import strip
from .tile import LANES, ROWS, near_height, near_tile, padded, tile
from .turned_tile import turn, turned_tile

ROW_BLOCK = 64  # rows of dw that are made together; shard borders fall between blocks
STEP_BLOCK = 256  # steps of a product before the next block of w is taken: that much of w stays in the cache


@operation
def forward(n, x, w, b, y):
    """y = x·w + b for the first n rows; b has shape (out,), or (0,) for no bias."""
    y[:n] = x[:n] @ w
    if b.size:
        y[:n] += b


@forward.nest
def forward_nest(n, x, w, b, y):
    inputs, outputs = w.shape
    a_row = np.empty(n + 2 * ROWS, np.int64)
    c_row = np.empty(n + 2 * ROWS, np.int64)
    for m in range(a_row.shape[0]):
        a_row[m] = min(m, n - 1) * inputs
        c_row[m] = min(m, n - 1) * outputs
    one_tap = np.zeros(1, np.int64)
    flat_x, flat_w, flat_y = x.reshape(-1), w.reshape(-1), y.reshape(-1)
    begin, go_on = (b if b.shape[0] > 0 else np.zeros(outputs, np.float32)), np.empty(0, np.float32)
    # A large w comes from far away: it is read once, in blocks that all samples use.
    for start in range(0, inputs, STEP_BLOCK):
        for block in prange((outputs + LANES - 1) // LANES):
            k = block * LANES
            for m in range(0, n, ROWS):
                tile(flat_x, start, a_row, m, min(ROWS, n - m), one_tap, one_tap, min(STEP_BLOCK, inputs - start), 1,
                     flat_w, start * outputs + k, outputs, flat_y, k, c_row, min(LANES, outputs - k),
                     go_on if start else begin, k)  # fmt: skip


def backward_data_work(chunk, inputs, outputs) -> int:
    """Floats of scratch that backward_data needs: dyᵀ, samples padded to whole vectors."""
    return outputs * padded(chunk, LANES)


@operation
def backward_data(n, dy, w, dx, work):
    """dx = dy·wᵀ for the first n rows; `work` is scratch, see backward_data_work."""
    dx[:n] = dy[:n] @ w.T


@backward_data.nest
def backward_data_nest(n, dy, w, dx, work):
    # Sums go along rows of w as they lie, each read once for all samples: only dy, which is small, is turned.
    inputs, outputs = w.shape
    samples = padded(n, LANES)
    flat_dy, flat_w, flat_dx = dy.reshape(-1), w.reshape(-1), dx.reshape(-1)
    turn(flat_dy, 0, outputs, n, work, 0, samples, outputs)
    for block in prange((inputs + LANES - 1) // LANES):
        m = block * LANES
        turned_tile(flat_w, m * outputs, outputs, min(LANES, inputs - m), work, 0, samples, outputs,
                    flat_dx, m, inputs, n)  # fmt: skip


@operation
def store_rows(n, source, panel, clock):
    """Copy the first n rows of source (chunk, width) to their place in the batch-wide panel, from row clock[FIRST]."""
    first = clock[FIRST]
    panel[first : first + n] = source[:n]


@store_rows.nest
def store_rows_nest(n, source, panel, clock):
    begin, size = clock[FIRST] * source.shape[1], n * source.shape[1]
    target, values = panel.reshape(-1)[begin : begin + size], source.reshape(-1)[:size]
    for j in range(size):
        target[j] = values[j]


@device
def _meet(stride):
    """Whether numbers of many samples, so many floats apart, meet at few places of the nearest cache and push each
    other out of it."""
    return stride % 128 == 0


@device
def _in_strips(n, flat, width, first, columns):
    """Columns first … first + columns of n rows of that width, in strips of LANES columns one below the other."""
    strips = np.empty(n * padded(columns, LANES), np.float32)
    for k in range(0, columns, LANES):
        strip(flat, first + k, width, n, min(LANES, columns - k), strips, k * n)
    return strips


@operation
def backward_weights(n, x, dy, dw, low, high):
    """Rows low … high of dw (in, out) = xᵀ·dy over the n samples of the batch-wide panels x and dy.

    `low` and `high` are multiples of ROW_BLOCK, or the end: a block is one product whatever the shard it falls into.
    """
    for row in range(low, high, ROW_BLOCK):
        block = slice(row, min(row + ROW_BLOCK, high))
        dw[block] = x[:n, block].T @ dy[:n]


@backward_weights.nest
def backward_weights_nest(n, x, dy, dw, low, high):
    inputs, outputs = dw.shape
    a_row = np.empty(inputs + 2 * ROWS, np.int64)
    c_row = np.empty(inputs + 2 * ROWS, np.int64)
    for m in range(a_row.shape[0]):
        a_row[m] = min(m, inputs - 1)
        c_row[m] = min(m, inputs - 1) * outputs
    one_tap, zeros = np.zeros(1, np.int64), np.zeros(LANES, np.float32)
    flat_x, flat_dy, flat_dw = x.reshape(-1), dy.reshape(-1), dw.reshape(-1)
    strips = _meet(outputs)
    b, b_step = (_in_strips(n, flat_dy, outputs, 0, outputs), LANES) if strips else (flat_dy, outputs)
    for block in prange((high - low + 2 * ROWS - 1) // (2 * ROWS)):
        first = low + block * 2 * ROWS
        below = min(first + 2 * ROWS, high)
        a, a0, a_step = flat_x, 0, inputs
        if outputs > LANES and _meet(inputs):  # each number of x is used for several strips
            a, a0, a_step = _in_strips(n, flat_x, inputs, first, min(LANES, inputs - first)), -first, LANES
        for k in range(0, outputs, LANES):
            cols = min(LANES, outputs - k)
            step = near_height(cols)
            for m in range(first, below, step):
                near_tile(a, a0, a_row, m, min(step, below - m), one_tap, one_tap, n, a_step,
                          b, k * n if strips else k, b_step, flat_dw, k, c_row, cols, zeros, 0)  # fmt: skip
