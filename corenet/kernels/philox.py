"""Random numbers without a stream: Philox 4×32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

A number is a function of a key (the seed) and a counter (what it is for: step, sample, layer, element), so whoever
needs it computes it, in any order, on any worker, to the same bits.
"""

import numpy as np

from .operation import device

# The last counter word says what a number is for, so that two uses never share numbers. Layers use theirs, counting up.
ORDER = 0xFFFFFFFF
AUGMENT = 0xFFFFFFFE


@device
def philox(c0, c1, c2, c3, k0, k1):
    """Four random 32-bit words of counter (c0 … c3) and key (k0, k1); integers or uint64 arrays below 2³²."""
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    c0, c1, c2, c3 = c0 & low, c1 & low, c2 & low, c3 & low
    k0, k1 = k0 & low, k1 & low
    for _ in range(10):
        a = np.uint64(0xD2511F53) * c0
        b = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (b >> shift) ^ c1 ^ k0, b & low, (a >> shift) ^ c3 ^ k1, a & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return c0, c1, c2, c3


@device
def philox_block(first, c1, c2, c3, k0, k1, words):
    """words (4, count) uint64 = philox of the counters (first + g, c1, c2, c3): round by round, in loops over g."""
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    a_words, b_words, c_words, d_words = words[0], words[1], words[2], words[3]
    for g in range(words.shape[1]):
        a_words[g], b_words[g] = (first + np.uint64(g)) & low, c1 & low
        c_words[g], d_words[g] = c2 & low, c3 & low
    for r in range(10):
        key0 = (k0 + np.uint64(r) * np.uint64(0x9E3779B9)) & low
        key1 = (k1 + np.uint64(r) * np.uint64(0xBB67AE85)) & low
        for g in range(words.shape[1]):
            a = np.uint64(0xD2511F53) * (a_words[g] & low)  # so that LLVM knows: a product of 32 bits by 32
            b = np.uint64(0xCD9E8D57) * (c_words[g] & low)
            a_words[g], b_words[g] = (b >> shift) ^ b_words[g] ^ key0, b & low
            c_words[g], d_words[g] = (a >> shift) ^ d_words[g] ^ key1, a & low


def permutation(seed: int, epoch: int, n: int) -> np.ndarray:
    """The order (n,) int64 of an epoch's n samples: sorted by a random 64-bit number of (seed, epoch, sample)."""
    sample = np.arange(n, dtype=np.uint64)
    seed_low, seed_high = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)
    zero = np.zeros(n, np.uint64)
    high, low, _, _ = philox(sample, zero, zero + np.uint64(epoch), zero + np.uint64(ORDER), seed_low, seed_high)
    return np.argsort(high << np.uint64(32) | low, kind="stable").astype(np.int64)
