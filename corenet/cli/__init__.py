"""The command line: corenet train | evaluate | predict | info | bench.

ending      runs a command; what it raises becomes a message and an exit code
app         the commands, their options and their help
train       corenet train, and run_folder: where a run is kept
evaluate    corenet evaluate
predict     corenet predict
info        corenet info
bench       corenet bench kernels | step | compare; bench_app: their options
options     from option texts to settings
output      JSON on standard output
started     time since the process started

A command imports what it needs when it runs, and `train` starts the workers before anything slow is imported here.
"""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command that the process was called with, and end the process."""
    from .ending import run

    sys.exit(run(sys.argv[1:]))
