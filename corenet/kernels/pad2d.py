"""Zero padding: copies images into the middle of larger ones with a border of zeros.

Its backward is not here: `conv2d.backward_data` gives the gradient of the unpadded image directly.
"""

from .operation import operation, prange


@operation
def forward(n, x, y, padding):
    """Copy x (chunk, H, W, C) into y (chunk, H+2·ph, W+2·pw, C), zeros around; padding (ph, pw)."""
    ph, pw = padding
    y[:n] = 0
    y[:n, ph : y.shape[1] - ph, pw : y.shape[2] - pw] = x[:n]


@forward.nest
def forward_nest(n, x, y, padding):
    ph, pw = padding
    H, W, C = x.shape[1], x.shape[2], x.shape[3]
    for i in prange(n):
        for h in range(y.shape[1]):
            for v in range(y.shape[2]):
                inside = ph <= h < H + ph and pw <= v < W + pw
                for c in range(C):
                    y[i, h, v, c] = x[i, h - ph, v - pw, c] if inside else 0
