"""corenet bench as a user runs it: tables, JSON, mistakes."""

import json
from pathlib import Path

import pytest
from cli_command import CONTROL, Terminal, corenet, fail, succeed, without

pytest.importorskip("numba")

QUICK = ("--quick", "--rounds", 2)


@pytest.fixture(scope="module")
def kernels_run(tmp_path_factory):
    """The layers of a small net: the folder with the JSON file, standard output and error."""
    folder = tmp_path_factory.mktemp("bench")
    done = corenet("bench", "kernels", *QUICK, "--only", "dense 84", "--json", "k.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout, done.stderr


def test_layers_as_a_table(kernels_run):
    _, said, progress = kernels_run
    lines = said.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["machine", "versions", "kernels", "peaks"]
    assert "GFLOP/s and" in lines[3] and "GB/s from memory on 1 core" in lines[3]
    assert lines[5].split()[:4] == ["layer", "pass", "algorithm", "GFLOP/s"]
    rows = [line.split() for line in lines[7:]]
    assert [row[:4] for row in rows] == [["dense", "84→10", name, "dense"] for name in ("forward", "data", "weights")]
    assert progress.splitlines() == ["1/2 peaks", "2/2 dense 84→10"]
    assert not CONTROL.search(said + progress)


def test_layers_as_json(kernels_run):
    folder, _, _ = kernels_run
    document = json.loads((folder / "k.json").read_text(encoding="utf-8"))
    assert (document["format"], document["version"], document["suite"]) == ("corenet bench", 1, "kernels")
    assert document["settings"] == {"only": ["dense 84"], "peers": False, "quick": True, "rounds": 2, "batch": 128}
    assert document["machine"].keys() == {"name", "cpu", "cores", "system"}
    assert all(len(line["values"]) == 2 and line["nets"] == ["lenet5"] for line in document["lines"])
    assert sorted(path.name for path in folder.iterdir()) == ["k.json"]


def test_a_net_quickly_and_only_json_on_standard_output(tmp_path):
    said = succeed("bench", "step", *QUICK, "--only", "lenet5", "--batch", 16, "--json", "-", cwd=tmp_path)
    document = json.loads(said)
    assert said.count("\n") == 1 and list(tmp_path.iterdir()) == []
    kinds = [(line["workers"], line["kind"]) for line in document["lines"]]
    counts = sorted({1, len(document["machine"]["cores"])})
    assert kinds == [(count, kind) for count in counts for kind in ("train", "predict")]
    assert all((line["kind"] == "train") == ("percent_outside" in line) for line in document["lines"])
    assert all(line["batch"] == 16 and line["gflops"] > 0 < line["percent_of_peak"] for line in document["lines"])


def test_results_are_compared(kernels_run):
    folder, _, _ = kernels_run
    lines = succeed("bench", "compare", "k.json", "k.json", cwd=folder).splitlines()
    assert lines[0].split() == ["line", "old", "new", "unit", "new/old"]
    assert [line.split("  ")[0] for line in lines[2:]] == [f"dense 84→10, {p}" for p in ("forward", "data", "weights")]
    assert all(" 1.00 " in line and line.endswith("within the spread") for line in lines[2:])
    found = json.loads(succeed("bench", "compare", "k.json", "k.json", "--json", cwd=folder))
    assert [line["ratio"] for line in found["lines"]] == [1, 1, 1]


def test_help_names_the_suites(tmp_path):
    for arguments in (("bench",), ("bench", "--help")):
        said = succeed(*arguments, cwd=tmp_path)
        assert all(f"\n  {name}" in said for name in ("kernels", "step", "compare"))


MISTAKES = {
    ("kernels", "--only", "lenet"): "--only: expected one of lenet5,",
    ("kernels", "--rounds", "0"): "--rounds: expected a number of at least 1, got 0",
    ("kernels", "--batch", "0"): "--batch: expected a number of at least 1, got 0",
    ("step", "--only", "dense"): "--only: expected one of lenet5,",
    ("step", "--batch", "-3"): "--batch: expected a number of at least 1, got -3",
    (
        "step",
        "--json",
        "no/such/file.json",
    ): "--json no/such/file.json: expected a file to write, got no folder no/such",
    ("kernels", "--json", "."): "--json .: expected a file to write, got a folder",
    ("compare", "a.json", "b.json"): "a.json: expected a result of corenet bench, got No such file or directory",
    ("compare", "text.json", "text.json"): "text.json: expected a result of corenet bench, got no JSON, or a part",
    ("compare", "a.json"): "Missing argument 'NEW'",
    ("speed",): "No such command 'speed'",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_mistakes_are_one_line(arguments, tmp_path):
    (tmp_path / "text.json").write_text("text")
    assert MISTAKES[arguments] in fail("bench", *arguments, cwd=tmp_path)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that takes no files, even from root")
def test_a_folder_that_takes_no_files_is_found_out_before_anything_is_measured(tmp_path):
    said = fail("bench", "kernels", "--quick", "--json", "/proc/x.json", cwd=tmp_path)
    assert "--json /proc/x.json: expected a file to write, got No such file or directory in /proc" in said


def test_peers_without_pytorch(tmp_path):
    (tmp_path / "bench").mkdir()
    for name in ("peers.py", "torch_peer.py"):
        (tmp_path / "bench" / name).write_text("")
    said = fail("bench", "kernels", "--peers", cwd=tmp_path, env=without(tmp_path, "torch"))
    assert said == "error: --peers needs PyTorch, which is not installed. pip install torch"


def test_without_numba_nothing_is_measured(tmp_path):
    said = fail("bench", "kernels", cwd=tmp_path, env=without(tmp_path, "numba"))
    assert "kernels: expected an importable Numba" in said


def test_ctrl_c_ends_it_and_leaves_the_terminal_as_it_was(tmp_path):
    terminal = Terminal("bench", "kernels", "--only", "conv", "--json", "k.json", cwd=tmp_path, type_after="conv 28")
    assert terminal.code == 130 and terminal.before == terminal.after
    assert terminal.screens()[-1][-2:] == ["interrupted", ""]
    assert list(tmp_path.iterdir()) == []
