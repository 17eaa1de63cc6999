"""From the shared data set to a chunk: pick samples by the epoch's order, augment, scale.

Random shift and flip are keyed by (seed, epoch, sample), so every worker would make the same picture of a sample, and
no two epochs the same.
"""

import numpy as np

from .clock import EPOCH, SEED
from .operation import operation, prange
from .philox import AUGMENT, philox
from .rows import repeated, row_width


@operation
def images(n, source, order, first, x, samples, scale, offset, clock, shift, flip):
    """x[i] = source[order[first+i]] · scale + offset, moved by up to ±shift pixels and mirrored at random if flip.

    source (N, H, W, C) uint8 or float32, order (N,) int64, x (chunk, H, W, C), samples (chunk,) int64 receives the
    numbers of the samples, scale and offset (C,). Pixels that come in from outside are 0 (before scaling).
    """
    H, W = source.shape[1:3]
    for i in range(n):
        sample = samples[i] = order[first + i]
        image = source[sample]
        if shift or flip:
            seed, zero = np.uint64(clock[SEED]), np.uint64(0)
            dh, dw, mirror, _ = philox(
                np.uint64(sample), zero, np.uint64(clock[EPOCH]), np.uint64(AUGMENT), seed, seed >> np.uint64(32)
            )
            top, left = (int(word * np.uint64(2 * shift + 1) >> np.uint64(32)) for word in (dh, dw))
            bordered = np.pad(image, ((shift, shift), (shift, shift), (0, 0)))
            image = bordered[top : top + H, left : left + W]
            if flip and mirror & np.uint64(1):
                image = image[:, ::-1]
        x[i] = image * scale + offset


@images.nest
def images_nest(n, source, order, first, x, samples, scale, offset, clock, shift, flip):
    H, W, C = x.shape[1], x.shape[2], x.shape[3]
    size, width = H * W * C, row_width(C, H * W)
    scales, offsets = repeated(scale, width), repeated(offset, width)
    flat_source, flat_x = source.reshape(-1), x.reshape(-1)
    for i in prange(n):
        sample = order[first + i]
        samples[i] = sample
        if shift > 0 or flip:
            seed, zero = np.uint64(clock[SEED]), np.uint64(0)
            words = philox(
                np.uint64(sample), zero, np.uint64(clock[EPOCH]), np.uint64(AUGMENT), seed, seed >> np.uint64(32)
            )
            span = np.uint64(2 * shift + 1)
            top = np.int64(words[0] * span >> np.uint64(32)) - shift
            left = np.int64(words[1] * span >> np.uint64(32)) - shift
            mirror = flip and (words[2] & np.uint64(1)) > 0
            for h in range(H):
                for v in range(W):
                    row, column = h + top, (W - 1 - v if mirror else v) + left
                    inside = 0 <= row < H and 0 <= column < W
                    for c in range(C):
                        value = np.float32(source[sample, row, column, c]) if inside else np.float32(0)
                        x[i, h, v, c] = value * scale[c] + offset[c]
        else:
            for start in range(0, size, width):
                pixels = flat_source[sample * size + start : sample * size + min(start + width, size)]
                target = flat_x[i * size + start : i * size + min(start + width, size)]
                for j in range(pixels.shape[0]):
                    target[j] = np.float32(pixels[j]) * scales[j] + offsets[j]


@operation
def targets(n, source, samples, y):
    """y[i] = source[samples[i]]: labels or values (N, elements) of the samples of a chunk."""
    y[:n] = source[samples[:n]]


@targets.nest
def targets_nest(n, source, samples, y):
    for i in range(n):
        for j in range(y.shape[1]):
            y[i, j] = source[samples[i], j]
