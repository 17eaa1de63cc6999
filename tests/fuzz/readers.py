"""Coverage-guided fuzzing of the readers: python tests/fuzz/readers.py NAME --runs N, or all of them without a name.

Needs atheris (pip install atheris). An input is a finding if anything but an error of corenet comes out, if reading it
takes more than a second, or if more memory is prepared at once than a few megabytes. The inputs begin with the sound
files of tests/seeds.py and lie in memory. The exit code is 0 if nothing was found; the last line has the count.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

SECONDS = 1.0
MEMORY = 256 << 20  # bytes of address space beyond what the process has when it begins


def fuzz(name: str, runs: int) -> None:
    """Fuzz one reader in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(
        include=["corenet.datasets", "corenet.train", "pickletools", "zipfile", "numpy.lib"]
    ):
        from seeds import READERS

        from corenet.errors import CorenetError

    ending, seeds, read = READERS[name]
    shared = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        path, corpus = Path(folder, f"file{ending}"), Path(folder, "corpus")
        corpus.mkdir()
        for number, content in enumerate(seeds()):
            (corpus / str(number)).write_bytes(content)
            path.write_bytes(content)
            read(path)  # what is loaded at the first call counts for nobody

        def one(content: bytes) -> None:
            path.write_bytes(content)
            begin = time.monotonic()
            with contextlib.suppress(CorenetError):
                read(path)
            assert time.monotonic() - begin < SECONDS, "too slow"

        warnings.simplefilter("error")
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        options = [
            f"-runs={runs}",
            "-max_len=8192",
            "-rss_limit_mb=0",
            "-timeout=10",
            "-seed=1",
            "-print_final_stats=1",
        ]
        atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={os.getcwd()}/{name}-", str(corpus)], one)
        atheris.Fuzz()


def main() -> int:
    """Fuzz each reader in a process of its own."""
    from seeds import READERS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=list(READERS))
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        fuzz(options.name, options.runs)
        return 0
    total, found = 0, []
    for name in [options.name] if options.name else READERS:
        command = [sys.executable, __file__, name, "--runs", str(options.runs), "--here"]
        begin = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in done.stderr.splitlines() if line.startswith("stat::number_of_executed_units")]
        count = int(lines[0].split()[-1]) if lines else 0
        total += count
        if done.returncode:
            found.append(name)
            print(done.stderr[-3000:])
        print(
            f"{name}: {count:,} inputs in {time.monotonic() - begin:.0f} s{', a finding' * (name in found)}", flush=True
        )
    print(f"{total:,} inputs, findings in {', '.join(found) or 'none'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
