"""The commands as a user runs them: what they print, what they leave, and that they agree with each other."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_command import CONTROL, corenet, environment, importing_from, succeed, without

import corenet as package
from corenet import datasets
from corenet.datasets.idx import write_idx
from corenet.datasets.images import save_image
from corenet.kernels.backend import bf16_problem

KEYS = {
    "train_accuracy", "test_accuracy", "test_loss", "epochs", "images_per_second", "seconds_total", "seconds_compile",
    "seconds_to_first_step", "workers", "threads", "chunk", "kernels", "precision", "params_sha256", "seed", "model",
    "dataset", "out",
}  # fmt: skip
FILES = ["curves.png", "history.json", "model.safetensors"]
QUICK = ("--epochs", 1, "--kernels", "numpy", "--workers", 2, "--share-cores")


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory) -> tuple[Path, dict, str]:
    """A run on the digits: its folder, its result, what it said."""
    folder = tmp_path_factory.mktemp("digits")
    arguments = "train", "digits", "--epochs", 4, "--workers", 2, "--share-cores", "--seed", 5, "--json", "--out", "run"
    done = corenet(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1  # exactly one object, on one line
    return folder / "run", json.loads(done.stdout), done.stderr


def test_without_arguments_the_main_job_is_done(tmp_path):
    result = json.loads(succeed("train", "--json", cwd=tmp_path))
    assert result["test_accuracy"] >= 0.86
    assert (result["dataset"], result["model"]) == ("fashion-mnist-subset", "keras_mnist")
    assert sorted(path.name for path in (tmp_path / result["out"]).iterdir()) == FILES


def test_the_result_says_what_was_asked_and_what_came_of_it(digits_run):
    _, result, _ = digits_run
    assert result.keys() >= KEYS
    assert (result["dataset"], result["model"], result["out"]) == ("digits", "digits_cnn", "run")
    assert (result["epochs"], result["seed"], result["workers"], result["threads"]) == (4, 5, 2, 1)
    assert 0.85 < result["test_accuracy"] <= 1 and 0.85 < result["train_accuracy"] <= 1
    assert 0 < result["seconds_to_first_step"] < result["seconds_total"]
    assert 0 < result["seconds_compile"] < result["seconds_total"]
    assert result["images_per_second"] == pytest.approx(4 * 1437 / result["seconds_train"])


def test_a_run_folder_holds_model_history_and_curves(digits_run):
    folder, result, _ = digits_run
    assert sorted(path.name for path in folder.iterdir()) == FILES
    history = json.loads((folder / "history.json").read_text())
    assert [record["epoch"] for record in history["epochs"]] == [1, 2, 3, 4]
    assert history["epochs"][-1]["val_accuracy"] == result["test_accuracy"]
    assert sum(worker["samples"] for worker in history["workers"]) == 4 * 1437
    assert {**history["run"], "seconds_total": 0} == {**result, "seconds_total": 0}
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert package.load(folder / "model.safetensors").params_sha256() == result["params_sha256"]


def test_the_training_accuracy_is_the_final_models(digits_run):
    folder, result, _ = digits_run
    with package.load(folder / "model.safetensors", workers=1) as trainer:
        scores = trainer.evaluate(datasets.digits()[0])
    assert scores["accuracy"] == result["train_accuracy"]


def test_with_json_people_read_standard_error(digits_run):
    _, _, said = digits_run
    starts = (
        "machine ", "kernels ", "workers  2 workers x 1 thread", "data     digits", "model    digits_cnn, 38,282",
        "kernels ready in", "epoch 1/4", "epoch 4/4", "worker ", "test     accuracy", "saved    run",
    )  # fmt: skip
    for start in starts:
        assert any(line.startswith(start) for line in said.splitlines()), start
    assert not CONTROL.search(said)


def test_without_json_they_read_standard_output_even_if_colour_is_forced(tmp_path):
    done = corenet("train", "digits", *QUICK, cwd=tmp_path, env=environment(FORCE_COLOR="1", TERM="xterm"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nepoch 1/1  loss" in done.stdout
    assert not CONTROL.search(done.stdout)
    folder, latest = sorted((tmp_path / "runs").iterdir())
    assert folder.name.startswith("digits-digits_cnn-")
    assert latest.name == "latest" and latest.resolve() == folder.resolve()
    assert f"saved    runs/{folder.name}\n" in done.stdout


def test_one_worker_gets_the_same_bits(digits_run, tmp_path):
    arguments = "train", "digits", "--epochs", 4, "--workers", 1, "--seed", 5, "--json"
    result = json.loads(succeed(*arguments, cwd=tmp_path))
    assert result["workers"] == 1
    assert result["params_sha256"] == digits_run[1]["params_sha256"]


def test_options_reach_the_trainer(tmp_path):
    arguments = "--optimizer", "sgd", "--lr", 0.01, "--chunk", 5, "--batch-size", 100, "--model", "digits_cnn"
    result = json.loads(succeed("train", "digits", *QUICK, *arguments, "--json", cwd=tmp_path))
    assert (result["chunk"], result["batch_size"], result["optimizer"]) == (5, 100, "sgd")
    assert result["learning_rate"] == 0.01
    assert "NumPy" in result["kernels"]
    about = package.train.model_file.load_model(tmp_path / result["out"] / "model.safetensors")[0]
    assert about.optimizer["lr"] == {"type": "Cosine", "lr": 0.01, "epochs": 1.0, "final": 0.0}
    assert about.optimizer["momentum"] == 0.9


def test_an_earlier_run_is_kept_unless_it_may_be_overwritten(digits_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(digits_run[0], folder)
    (folder / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = corenet("train", "digits", *QUICK, "--out", folder, cwd=tmp_path)
    assert done.returncode == 2
    assert "holds an earlier run" in done.stderr and "--overwrite" in done.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    env = without(tmp_path, "matplotlib")
    said = succeed("train", "digits", *QUICK, "--out", folder, "--overwrite", cwd=tmp_path, env=env)
    assert "no curves.png: curves need Matplotlib. Install it: pip install 'corenet[plot]'\n" in said
    assert sorted(path.name for path in folder.iterdir()) == ["history.json", "model.safetensors", "notes.txt"]
    assert json.loads((folder / "history.json").read_text())["run"]["epochs"] == 1
    assert (folder / "model.safetensors").read_bytes() != before["model.safetensors"]


def test_a_broken_matplotlib_costs_the_curves_only(tmp_path):
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("raise AttributeError('not for this NumPy')")
    said = succeed("train", "digits", *QUICK, "--out", "run", cwd=tmp_path, env=importing_from(tmp_path))
    assert "no curves.png: Matplotlib failed (AttributeError: not for this NumPy)" in said
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == FILES[1:]


def test_evaluate_says_what_train_said(digits_run, tmp_path):
    folder, result, _ = digits_run
    found = json.loads(succeed("evaluate", folder, "--json", "--workers", 1, cwd=tmp_path))
    assert (found["accuracy"], found["loss"]) == (result["test_accuracy"], pytest.approx(result["test_loss"]))
    assert (found["dataset"], found["images"]) == ("digits", 360)
    assert [row["class"] for row in found["classes"]] == list("0123456789")
    hits = sum(row["accuracy"] * row["images"] for row in found["classes"])
    assert hits == pytest.approx(found["accuracy"] * 360)
    assert len({row["accuracy"] for row in found["classes"]}) > 1


def test_evaluate_takes_a_file_that_lies_alone(digits_run, tmp_path):
    model = shutil.copy(digits_run[0] / "model.safetensors", tmp_path / "net")
    said = succeed("evaluate", model, "--workers", 1, cwd=tmp_path)
    assert said.startswith("digits (1,437 + 360), 360 test images\n")
    assert f"accuracy {digits_run[1]['test_accuracy']:.2%}, loss" in said
    assert succeed("evaluate", model, "digits", "--workers", 1, cwd=tmp_path) == said


def idx_folder(folder: Path, n: int = 60) -> Path:
    """A data set like the digits, as IDX files."""
    folder.mkdir()
    train, test = (part.subset(slice(0, n)) for part in datasets.digits())
    for stem, part in (("train", train), ("t10k", test)):
        write_idx(folder / f"{stem}-images-idx3-ubyte.gz", part.x[..., 0])
        write_idx(folder / f"{stem}-labels-idx1-ubyte", part.y.astype(np.uint8))
    return folder


def test_a_folder_of_idx_files_is_a_data_set_from_train_to_evaluate(tmp_path):
    idx_folder(tmp_path / "mine")
    result = json.loads(succeed("train", "mine", *QUICK, "--json", cwd=tmp_path))
    assert (result["model"], result["dataset"]) == ("digits_cnn", str(tmp_path / "mine"))
    assert result["out"].startswith("runs/mine-digits_cnn-")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    found = json.loads(succeed("evaluate", tmp_path / result["out"], "--json", "--workers", 1, cwd=elsewhere))
    assert (found["images"], found["accuracy"]) == (60, result["test_accuracy"])


def test_predict_names_the_most_probable_classes(digits_run, tmp_path):
    folder, _, _ = digits_run
    test = datasets.digits()[1]
    with package.load(folder / "model.safetensors", workers=1) as trainer:
        wanted = trainer.predict(test.x[:3])
    save_image(tmp_path / "a.png", test.x[0])
    np.save(tmp_path / "b.npy", test.x[1] / np.float32(255))  # the same values to the net as the bytes
    np.save(tmp_path / "c.npy", test.x[2])
    images = "a.png", "b.npy", "c.npy"
    found = json.loads(succeed("predict", folder, *images, "--json", "--top", 10, cwd=tmp_path))
    assert [entry["image"] for entry in found["images"]] == list(images)
    for entry, row in zip(found["images"], wanted, strict=True):
        assert [c["class"] for c in entry["classes"]] == [str(label) for label in np.argsort(-row, kind="stable")]
        got = {c["class"]: c["probability"] for c in entry["classes"]}
        np.testing.assert_allclose([got[str(label)] for label in range(10)], row, rtol=1e-4, atol=1e-6)

    best = np.sort(wanted[0])[::-1]
    line = succeed("predict", folder, "a.png", cwd=tmp_path)
    assert line.startswith("a.png  ") and line.count("%") == 3
    assert f"{wanted[0].argmax()} {best[0]:.1%}, " in line


def test_predict_takes_an_image_out_of_an_idx_file(digits_run, tmp_path):
    source = idx_folder(tmp_path / "mine") / "t10k-images-idx3-ubyte.gz"
    save_image(tmp_path / "seven.png", datasets.digits()[1].x[7])
    arguments = "--json", "--top", 1
    out_of_idx = json.loads(succeed("predict", digits_run[0], source, "--index", 7, *arguments, cwd=tmp_path))
    from_png = json.loads(succeed("predict", digits_run[0], "seven.png", *arguments, cwd=tmp_path))
    assert out_of_idx["images"][0]["classes"] == from_png["images"][0]["classes"]


def test_info_says_what_runs_and_why(tmp_path):
    found = json.loads(succeed("info", "--json", cwd=tmp_path))
    assert found["corenet"] == package.__version__
    assert found["libraries"]["numpy"] == np.__version__
    assert found["cores"] and found["cpu"]
    assert found["kernels"].startswith("Numba") and found["tile_rows"] >= 1
    assert found["bf16"] == bf16_problem()
    assert found["datasets"].keys() == {"digits", "fashion-mnist", "fashion-mnist-subset"}
    assert found["extras"].keys() == {"images", "mat", "plot"}
    text = succeed("info", cwd=tmp_path)
    for start in ("corenet ", "CPU ", "workers ", "kernels ", "tile ", "bf16 ", "C library ", "C tile ", "cache ",
                  "BLAS ", "extras "):  # fmt: skip
        assert f"\n{start}" in f"\n{text}"
    assert found["cpu"] in text and found["cache"] in text
    for tile in found["c_tiles"]:
        assert f"{tile['name']} ({tile['rows']} rows)" in text


def test_info_without_numba_says_so(tmp_path):
    text = succeed("info", cwd=tmp_path, env=without(tmp_path, "numba", "llvmlite"))
    assert "NumPy definitions: Numba cannot be imported" in text
    assert "nothing is compiled" in text


def test_version_and_help(tmp_path):
    assert succeed("--version", cwd=tmp_path) == f"corenet {package.__version__}\n"
    text = succeed("--help", cwd=tmp_path)
    assert succeed(cwd=tmp_path) == text
    for name in ("train", "evaluate", "predict", "info"):
        assert f"\n  {name} " in text
        assert f"Usage: corenet {name} " in succeed(name, "--help", cwd=tmp_path)
    assert "train_accuracy is the final model's" in succeed("train", "--help", cwd=tmp_path)


def test_the_installed_script_is_the_same_command():
    script = Path(sys.executable).with_name("corenet")
    if not script.exists():
        pytest.skip("installed without its script")
    said = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"corenet {package.__version__}\n"
