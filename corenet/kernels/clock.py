"""What changes from chunk to chunk and step to step: a few integers that kernels read from one bound array.

Because they sit in an array, every argument of every kernel call is bound once at plan time.
"""

SEED = 0  # the run's seed
EPOCH = 1
STEP = 2  # steps since the beginning of the run
FIRST = 3  # place of the chunk's first sample in its batch
SIZE = 8
