"""A short torture; the long one is a command, and docs/reliability.md has its figures."""

import os

import pytest
from torture import main


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes in /proc")
@pytest.mark.timeout(280)
def test_some_faults_leave_no_trace(capsys):
    assert main(["--faults", "8", "--seed", "7"]) == 0
    words = capsys.readouterr().out.splitlines()[-1]
    assert ", 0 wrong" in words and " 0 recoveries" not in words, words
