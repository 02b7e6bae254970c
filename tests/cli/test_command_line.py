"""A misspelt name is reported in one line with the nearest one, before data are read or heavy libraries loaded."""

import json
import subprocess
import sys

import pytest

from m3g.cli.command_line import read_settings

HEAVY = ("torch", "numpy", "scipy", "lightning", "transformers", "sklearn", "matplotlib", "pandas", "kornia", "pyarrow")
WRONG = {
    "tran": "train",
    "train --los m3g": "--loss",
    "train --loss infonce-pw": "infonce-pwe",
    "train --loss_options.epsilom 1": "epsilon",
    "train --data multiple-feature": "multiple-features",
    "train --data_options.batchsize 3": "batch_size",
    "train --table t.csv --data_options.ignor [a]": "ignore",
    "train --views a.npy b.npy --data_options.standardise false": "standardize",
    "train --encoder con": "conv",
    "train --encoder_options.widht 3": "width",
    "train --encoder mlp --encoder_options.dept 3": "depth",
    "train --table t.csv --view.photo.encoder convv": "conv",
    "train --table t.csv --view.photo.kind imag": "image",
    "train --table t.csv --view.photo.encoder conv --view.photo.chanels [3]": "channels",
    "train --table t.csv --view.photo.lenght 3": "length",
    "train --loop.epoch 3": "epochs",
    "train --lr 0.1": "--optim.learning_rate",
    "train --optim.lr 0.1": "learning_rate",
    "train --batch_size 32": "--data_options.batch_size",
    "train --batch-size 32": "--data_options.batch_size",
    "train --epochs 3": "--loop.epochs",
    "train --loss infonce-pwe --loss_options.epsilon 0.1": "temperature",
    "evaluate . --few_shots true": "--few_shot",
    "search . --query 1 --tpo 3": "--top",
    "match a.npy b.npy --epsilom 3": "--epsilon",
    "losses m3gg": "m3g",
    "losses M3G": "m3g",
    "train --loss infonce": "infonce-pwe",
    "train --loss clip": "infonce-pwe",
    "train --view a.npy b.npy": "--views",
    "train --views a.npy b.npy --label y.npy": "--labels",
    "train --loss.epsilon 0.1": "--loss_options.epsilon",
    "train --data.batch_size 8": "--data_options.batch_size",
    "train --gpu 1": "--loop.devices",
    "--verson": "--version",
    "encoders con": "conv",
}
PROGRAM = """
import json, sys
from m3g.cli import main
codes = [main(words) for words in json.loads(sys.argv[1])]
print(json.dumps([codes, sorted(set(json.loads(sys.argv[2])) & set(sys.modules))]))
"""


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """Exit codes, imported heavy libraries and standard error of all invalid commands."""
    words = json.dumps([command.split() for command in WRONG])
    command = [sys.executable, "-c", PROGRAM, words, json.dumps(HEAVY)]
    completed = subprocess.run(command, cwd=tmp_path_factory.mktemp("empty"), capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    codes, loaded = json.loads(completed.stdout.splitlines()[-1])
    return codes, loaded, completed.stderr.splitlines()


def test_a_misspelt_name_is_reported_in_one_line_with_the_nearest_one(reported):
    codes, _, lines = reported
    assert codes == [2] * len(WRONG)
    assert len(lines) == len(WRONG), lines
    for line, (command, suggestion) in zip(lines, WRONG.items()):
        assert line.startswith("m3g: error: "), command
        assert line.endswith(f": did you mean {suggestion}?"), line


@pytest.mark.parametrize("words", [["train", "data.csv"], ["train", "a.npy", "b.npy"]], ids=" ".join)
def test_files_without_an_option_are_reported_with_the_options_for_files(error_line, words):
    assert error_line(*words).endswith(f"got {words[1]}: pass files with --table or --views.")


MISSING = {
    "train --table no.csv": "--table",
    "train --views no.npy b.npy": "--views",
    "train --views . . --labels no.npy": "--labels",
    "train --data images --data_options.root nowhere": "data_options.root",
    "tune --views . no.npz:x": "--views",
    "match . no.npy": "files",
}


def test_missing_files_are_reported_before_heavy_libraries_are_loaded(tmp_path):
    words = json.dumps([command.split() for command in MISSING])
    command = [sys.executable, "-c", PROGRAM, words, json.dumps(HEAVY)]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(completed.stdout) == [[2] * len(MISSING), []]
    for line, option in zip(completed.stderr.splitlines(), MISSING.values(), strict=True):
        assert line.startswith(f"m3g: error: {option} must be a file or folder that exists, got 'no"), line


def test_an_option_without_its_value_is_reported(error_line):
    assert error_line("train", "--out").endswith("--out must have a value, got none.")
    assert error_line("match", "a.npy", "b.npy", "--known").endswith("--known must have a value, got none.")


def test_a_group_of_settings_may_be_a_mapping():
    parsed = read_settings(["--loss_options", "{epsilon: 0.1}", "--loop={epochs: 3}"])
    assert parsed.settings == {"loss_options": {"epsilon": 0.1}, "loop": {"epochs": 3}}
    assert read_settings(["--view", "a.npy"]).others == ["--view", "a.npy"]


def test_no_heavy_library_is_loaded_for_a_misspelt_name(reported):
    assert reported[1] == []


def test_no_heavy_library_is_loaded_for_help(tmp_path):
    program = """
import contextlib, io, sys
from m3g.cli.main import COMMANDS, main
with contextlib.redirect_stdout(io.StringIO()):
    main(["--help"])
    for command in COMMANDS:
        with contextlib.suppress(SystemExit):
            main([command, "--help"])
print(sorted(set(sys.argv[1:]) & set(sys.modules)))
"""
    completed = subprocess.run([sys.executable, "-c", program, *HEAVY], cwd=tmp_path, capture_output=True, text=True)
    assert completed.stdout == "[]\n", completed.stderr


@pytest.mark.parametrize("words", [["--view.phto.size", "9"], ["--view.phot.encoder", "conv"]], ids=" ".join)
def test_a_misspelt_view_is_reported_with_the_nearest_one(tmp_path, error_line, words):
    lines = [f"{i % 4},text number {i},{i / 7}" for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["age,photo,size", *lines]) + "\n")
    line = error_line("train", "--table", tmp_path / "t.csv", *words, "--out", tmp_path / "run")
    assert line.endswith("did you mean photo?"), line
    assert not (tmp_path / "run").exists()
