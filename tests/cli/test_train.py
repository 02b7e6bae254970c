"""From files to a representation, by the command line only."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import m3g
from m3g.cli import main
from m3g.training.loop.logs import Table

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def three_files(folder):
    """Three views of 200 objects of 4 classes, as random maps of a shared vector."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(200) % 4)
    objects = 2 * np.eye(4)[labels] + 0.5 * rng.standard_normal((200, 4))
    for name, width in (("sound", 6), ("shape", 9), ("colour", 5)):
        view = np.tanh(objects @ rng.standard_normal((4, width))) + 0.1 * rng.standard_normal((200, width))
        np.save(folder / f"{name}.npy", view.astype(np.float32))
    np.save(folder / "kind.npy", np.array(["red", "green", "blue", "grey"])[labels])
    return [str(folder / f"{name}.npy") for name in ("sound", "shape", "colour")]


def test_three_files_are_trained_evaluated_and_embedded(tmp_path, monkeypatch, capsys, rendered):
    views = three_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    options = ["--data_options.batch_size", "30", "--encoder_options.width", "32", "--loop.epochs", "12"]
    assert main(["train", "--views", *views, "--labels", "kind.npy", *options]) == 0
    output = capsys.readouterr().out
    assert "m3g on 140 rows of 3 views (sound, shape, colour)" in output
    assert "linear_mean" in output
    run = tmp_path / "runs" / "m3g-1"
    results = json.loads((run / "results.json").read_text())
    numbers = results["numbers"]
    assert numbers["linear_mean"] > 0.9
    assert results["chance"].keys() == numbers.keys()
    assert results["chance"]["recall_at_1"] == pytest.approx(1 / results["test_rows"])
    assert set(results["raw"]) == {"linear_mean", "linear_views", "linear_concat", "knn_mean"}
    missing = results["missing"]
    assert [part["views"] for part in missing["subsets"]][:4] == [["sound"], ["shape"], ["colour"], ["sound", "shape"]]
    whole = missing["subsets"][-1]["linear"], missing["curve"]["linear"][0]
    assert whole == pytest.approx([numbers["linear_mean"]] * 2)
    assert missing["curve"]["linear_raw"][0] == pytest.approx(results["raw"]["linear_concat"])
    assert numbers["recall_at_1"] > 4 / 40  # ten times chance among 40 test rows
    assert {path.name for path in (run / "plots").iterdir()} == {
        "curves.png", "retrieval.png", "transfer.png", "missing.png", "map.png",
    }  # fmt: skip
    assert yaml.safe_load((run / "config.yaml").read_text())["data_options"]["paths"] == views
    assert len(Table(run / "metrics.csv").rows()) == 48
    assert [row["epoch"] for row in Table(run / "probes.csv").rows()] == [5, 10]
    assert json.loads((run / "environment.json").read_text())["versions"]["torch"] == torch.__version__

    # repeat everything from the folder
    (run / "results.json").unlink()
    assert main(["evaluate", str(run)]) == 0
    assert json.loads((run / "results.json").read_text())["numbers"] == numbers
    assert main(["embed", str(run), "--out", "emb.npz"]) == 0
    with np.load("emb.npz") as stored:
        assert stored["embeddings"].shape == (3, 200, 64)
        assert sorted(stored["index"]) == list(range(200))
        assert list(stored["views"]) == ["sound", "shape", "colour"]
        assert (stored["split"] == "test").sum() == 40
    # the network accepts unscaled rows
    with np.load("emb.npz") as stored:
        rows = [torch.from_numpy(np.load(view))[stored["index"]] for view in views]
        torch.testing.assert_close(m3g.load(run)(rows).detach(), torch.from_numpy(stored["embeddings"]))

    # a second run gets the next name and reads the settings of the first
    assert main(["train", "--config", str(run / "config.yaml"), "--loop.epochs", "1"]) == 0
    assert (tmp_path / "runs" / "m3g-2" / "results.json").exists()


def test_labels_are_optional(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--views", *three_files(tmp_path), "--loop.epochs", "1"]) == 0
    assert "recall_at_1" in capsys.readouterr().out
    assert main(["embed", "runs/m3g-1", "--out", "emb.npz", "--split", "test"]) == 0
    with np.load("emb.npz") as stored:
        assert "labels" not in stored
        assert stored["mean"].shape == (40, 64)


def test_printed_settings_are_a_settings_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--print_config", "--loss_options.epsilon", "0.2"]) == 0
    printed = capsys.readouterr().out
    assert yaml.safe_load(printed)["loss_options"] == {"epsilon": 0.2}
    (tmp_path / "my.yaml").write_text(printed)
    assert main(["train", "--config", "my.yaml", "--print_config"]) == 0
    assert capsys.readouterr().out == printed


def test_print_config_shows_the_settings_of_the_run(finished, tmp_path, monkeypatch, capsys):
    """With --views, they include the paths; with --resume, they are those of the earlier run."""
    monkeypatch.chdir(tmp_path)
    views = [str(finished / "a.npy"), str(finished / "b.npy")]
    assert main(["train", "--views", *views, "--loss", "infonce-pwe", "--print_config"]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert (printed["data"], printed["data_options"], printed["loss"]) == ("arrays", {"paths": views}, "infonce-pwe")
    assert main(["train", "--resume", str(finished / "run"), "--print_config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load((finished / "run" / "config.yaml").read_text())
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_and_leaves_no_files(tmp_path):
    """A limit on the file size simulates a disk that is too small for the first checkpoint."""
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000)); "
        "from m3g.cli import main; sys.exit(main(['train', '--out', 'deep/run']))"
    )
    result = subprocess.run(
        [sys.executable, "-c", limited], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert "disk is full or the file is too large" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["imagenet", "domainnet", "eeg"])
def test_built_in_settings_are_selected_by_name(capsys, name):
    assert main(["train", f"--config={name}", "--print_config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["loss"] == "m3g"


def test_eeg_settings_train_on_a_users_recordings(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for night in range(4):
        stage = np.arange(30) % 2
        wave = np.sin(np.outer(0.3 + 0.6 * stage, np.arange(50)))[:, None] + 0.3 * rng.standard_normal((30, 3, 50))
        np.savez(f"{night}.npz", signals=wave.astype(np.float32), label=np.array(["N", "W"])[stage])
    files = "[0.npz, 1.npz, 2.npz, 3.npz]"
    options = ["--data_options.paths", files, "--data_options.window", "50", "--data_options.val", "0.25"]
    options += ["--data_options.test", "0.25", "--data_options.batch_size", "8", "--loop.epochs", "1"]
    assert main(["train", "--config", "eeg", *options]) == 0
    output = capsys.readouterr().out
    assert "3 views" in output
    numbers = json.loads(Path("runs/m3g-1/results.json").read_text())["numbers"]
    assert numbers["few_shot_10"] > 0.8  # two frequencies
    assert "few_shot_50" not in numbers  # each class has 30 training rows
    assert main(["evaluate", "runs/m3g-1", "--few_shot", "false"]) == 0
    assert "few_shot" not in capsys.readouterr().out


def test_ctrl_c_shows_how_to_continue(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    append = Table.append

    def interrupt(table, row):
        append(table, row)
        if row["step"] == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(Table, "append", interrupt)
    options = ["--views", *three_files(tmp_path), "--loop.epochs", "4", "--loop.evaluate_every", "0"]
    assert main(["train", *options, "--out", "run"]) == 130
    assert "interrupted; continue with m3g train --resume run" in capsys.readouterr().err
    monkeypatch.setattr(Table, "append", append)
    assert main(["train", "--resume", "run"]) == 0
    assert len(Table(tmp_path / "run" / "metrics.csv").rows()) == 8


def test_a_warm_up_that_fills_the_run_is_reported(tmp_path, monkeypatch, capsys):
    views = three_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    small = ["--encoder_options.width", "8", "--heads.hidden", "8", "--loop.evaluate_every", "0"]
    assert main(["train", "--views", *views, *small, "--data_options.batch_size", "70", "--loop.epochs", "2"]) == 0
    assert "the warm-up of 2 epochs covers the whole run" in capsys.readouterr().out
