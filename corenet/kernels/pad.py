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
    lines, length = y.shape[1] * y.shape[2], y.shape[3] * C
    flat_x, flat_y, inner, first = x.reshape(-1), y.reshape(-1), W * C, before[2] * C
    for i in prange(n):
        for line in range(lines):
            d, h = line // y.shape[2] - before[0], line % y.shape[2] - before[1]
            target = flat_y[(i * lines + line) * length : (i * lines + line + 1) * length]
            if not (0 <= d < D and 0 <= h < H):
                for j in range(length):
                    target[j] = 0
                continue
            for j in range(first):
                target[j] = 0
            start = ((i * D + d) * H + h) * inner
            source, middle = flat_x[start : start + inner], target[first : first + inner]
            for j in range(inner):
                middle[j] = source[j]
            behind = target[first + inner :]
            for j in range(behind.shape[0]):
                behind[j] = 0
