"""What `test_tile_heights.py` has done in other processes, for forks that may end: only `mutate.py` collects this.

A tile that reads outside its arrays, at the edge of a page, ends the process. It belongs to conv, linear and tile.
"""

import tile_worker


def test_nothing_outside_the_arrays_is_read(monkeypatch):
    monkeypatch.setattr("sys.argv", ["tile_worker.py"])
    tile_worker.main()
