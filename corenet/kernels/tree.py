r"""The fixed tree along which chunk gradients are summed.

chunk    0   1   2   3   4          A node is the sum of its two children; which worker computed a chunk, and who
          \ /     \ /    |          folds the rows, leaves no trace in the bits, because the order of the additions
           0       2     4          depends on the number of chunks only.
            \     /      |
               0 --------            columns low … high of every row are one shard owner's; no two owners meet
"""

from .operation import device, operation, prange

BLOCK = 1024  # columns folded at a time: a block of a few rows stays in the cache


@device
def tree_sum(n, rows, first, last):
    """rows[0, first:last] = the tree sum of these columns of the first n rows, which is used up."""
    step = 1
    while step < n:
        for left in range(0, n - step, 2 * step):
            for j in range(first, last):
                rows[left, j] += rows[left + step, j]
        step *= 2


@operation
def fold(n, rows, total, low, high):
    """total[low:high] = the tree sum of rows[:n, low:high]; rows (chunks, width) is used up."""
    step = 1
    while step < n:
        for left in range(0, n - step, 2 * step):
            rows[left, low:high] += rows[left + step, low:high]
        step *= 2
    total[low:high] = rows[0, low:high]


@fold.nest
def fold_nest(n, rows, total, low, high):
    for block in prange((high - low + BLOCK - 1) // BLOCK):
        first = low + block * BLOCK
        last = min(first + BLOCK, high)
        tree_sum(n, rows, first, last)
        for j in range(first, last):
            total[j] = rows[0, j]


@operation
def sum_in_order(n, rows, total):
    """total (width,) += rows[:n] one after the other, in double: the batch's metrics."""
    for i in range(n):
        total += rows[i]


@sum_in_order.nest
def sum_in_order_nest(n, rows, total):
    for i in range(n):
        for j in range(total.shape[0]):
            total[j] += rows[i, j]
