"""The mutants of `mutate.py`: there are some of everything that computes, and what is wrong is noticed."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("numba")

from mutants import modules
from mutate import OPERATIONS, all_mutants, function_of, target

SCRIPT = str(Path(__file__).with_name("mutate.py"))


def test_every_definition_and_nest_has_mutants():
    assert {operation.name.partition(".")[0] for operation in OPERATIONS} <= set(modules())
    count = Counter(target(mutant) for mutant in all_mutants([]))
    for operation in OPERATIONS:
        definition, nest = operation.reference, function_of(operation.loops)
        assert count[definition] > 1 and count[nest] > 1, operation
        assert count[definition] + count[nest] > 4, operation


def test_mutants_are_other_programs_and_always_the_same():
    found = all_mutants([])
    assert found == all_mutants([]) and len({str(mutant) for mutant in found}) == len(found) > 400
    for mutant in found[::20]:
        before = Path(target(mutant).__code__.co_filename).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(before)) != ast.dump(ast.parse(mutant.source())), mutant


def run(*arguments: str) -> str:
    command = [sys.executable, SCRIPT, *arguments, "--jobs", "1", "--tests", "kernels"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_dropped_term_is_noticed():
    text = run("bias", "--only", "add_nest: y[i, p, k] += b[k]")
    assert "| bias | 1 | 1 | 0 | 0 |" in text and "1. test_kernels.py::test_nest_runs_as_plain_python" in text


def test_what_makes_no_difference_is_not():
    text = run("elementwise", "--every", "--only", "relu_forward_nest: x[i, j] < 0")
    assert "| elementwise | 1 | 0 | 1 | 0 |" in text
