"""Kernels: one file per operation, with its contract, its NumPy definition and its loop nest.

Nothing here knows what a layer is. `operation` says what a kernel is, `tile` has the one inner loop under all products,
`backend` picks an implementation, `numba_backend` compiles nests, `native` binds the C of csrc/.
"""
