"""What tests of tiles and of Winograd's kernels leave to other processes: only `mutate.py` collects this.

What reads outside its arrays, at the edge of a page, ends the process: here, a fork that is there for it. It belongs to
conv, linear, winograd and tile.
"""

import tile_worker


def test_nothing_outside_the_arrays_of_tiles_is_read():
    tile_worker.run_tiles_at_the_edge()


def test_nothing_outside_the_arrays_of_winograd_is_read():
    tile_worker.run_winograd_at_the_edge()
