"""Zero padding: copies images into larger ones with a border of zeros.

Its backward is not here: `conv.backward_data` gives the gradient of the unpadded image directly.
"""

from .operation import operation, prange


@operation
def forward(n, x, y, before):
    """Copy x (chunk, D, H, W, C) into the larger y: `before` (depth, height, width) zeros in front, the rest behind."""
    y[:n] = 0
    d, h, v = (slice(b, b + size) for b, size in zip(before, x.shape[1:4], strict=True))
    y[:n, d, h, v] = x[:n]


@forward.nest
def forward_nest(n, x, y, before):
    D, H, W, C = x.shape[1], x.shape[2], x.shape[3], x.shape[4]
    for i in prange(n):
        for d in range(y.shape[1]):
            for h in range(y.shape[2]):
                line = before[0] <= d < D + before[0] and before[1] <= h < H + before[1]
                for v in range(y.shape[3]):
                    inside = line and before[2] <= v < W + before[2]
                    for c in range(C):
                        y[i, d, h, v, c] = x[i, d - before[0], h - before[1], v - before[2], c] if inside else 0
