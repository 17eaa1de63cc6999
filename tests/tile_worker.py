"""Checks the kernels on the tile in a process of its own, so that the tile's height and the machine's features can be
other than this machine's: prints what was compiled, and a hash of all results.

    python tile_worker.py [rows]        features by NUMBA_CPU_NAME and NUMBA_CPU_FEATURES
    python tile_worker.py winograd      only that Winograd's kernels stay within their arrays
    python tile_worker.py bf16          the same of those for bfloat16
    python tile_worker.py pooled        the same of convolutions with a max-pool, and that they are right
"""

import hashlib
import json
import re
import sys

import numpy as np
from grid import DEPTHWISE, PRODUCTS, check_convolution, check_product, geometries
from guarded import at_the_edge
from kernel_cases_bf16 import FAMILIES as BF16
from kernel_cases_pooled import FAMILIES as POOLED
from kernel_cases_winograd import winograd_cases

from corenet.kernels import conv, linear, numba_backend


def run_at_the_edge(operation, args):
    """Run with every array at the edge of a page: a read or write outside of it ends the process."""
    compiled = numba_backend.compile_for(operation, tuple(args), parallel=False)
    for after in (True, False):
        compiled(*(at_the_edge(a, after) if isinstance(a, np.ndarray) and a.size else a for a in args))
    return compiled


def run_winograd_at_the_edge() -> None:
    run_cases_at_the_edge(winograd_cases)


def run_cases_at_the_edge(*families) -> None:
    for case in (case for family in families for case in family(np.random.default_rng(0))):
        run_at_the_edge(case.operation, [a.astype(np.float32) if is_double(a) else a for a in case.args])


def check_pooled() -> None:
    """Results to float32's accuracy, on whatever machine this is taken for."""
    run_cases_at_the_edge(*POOLED)
    for case in (case for family in POOLED for case in family(np.random.default_rng(0))):
        args = [a.astype(np.float32) if is_double(a) else a for a in case.args]
        expected = [a.copy() if isinstance(a, np.ndarray) else a for a in case.args]
        case.operation(*expected)
        numba_backend.compile_for(case.operation, tuple(args), parallel=False)(*args)
        n = args[0] if case.per_sample else None
        for place in case.outputs:
            wanted = expected[place][:n]
            np.testing.assert_allclose(args[place][:n], wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


def is_double(value) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64


def run_tiles_at_the_edge() -> tuple[str, int]:
    """A hash of all results of kernels on the tile, checked against the definitions, and how many shapes there were."""
    digest, checked = hashlib.sha256(), 0

    def run(operation, args):
        run_at_the_edge(operation, args)(*args)

    for geometry in (*geometries(2)[::5], *DEPTHWISE):
        for result in check_convolution(geometry, run):
            digest.update(result.tobytes())
        checked += 1
    for shape in PRODUCTS:
        for result in check_product(*shape, run):
            digest.update(result.tobytes())
        checked += 1
    return digest.hexdigest(), checked


def main() -> None:
    if sys.argv[1:] == ["winograd"]:
        run_winograd_at_the_edge()
        return
    if sys.argv[1:] == ["bf16"]:
        run_cases_at_the_edge(*BF16)
        return
    if sys.argv[1:] == ["pooled"]:
        check_pooled()
        return
    if len(sys.argv) > 1:
        numba_backend.rows_for = lambda features, arch: int(sys.argv[1])  # type: ignore[assignment]
    digest, checked = run_tiles_at_the_edge()
    code = "".join(
        text
        for operation in (conv.forward, conv.backward_weights, conv.backward_data, linear.forward)
        for text in numba_backend.dispatcher(operation, False).inspect_asm().values()
    )
    vectors = sorted(set(re.findall(r"%([xyz]mm)\d", code)))
    fused = "vfmadd" in code
    print(json.dumps({"rows": numba_backend.tile_rows(), "checked": checked, "sha256": digest, "vectors": vectors,
                      "fused": fused}))  # fmt: skip


if __name__ == "__main__":
    main()
