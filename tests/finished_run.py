"""Small finished runs, as fixtures of all tests."""

import shutil

import numpy as np
import pytest

from m3g.cli import main

QUICK = ["--loop.epochs", "1", "--encoder_options.width", "8", "--heads.hidden", "8", "--loop.evaluate_every", "0"]


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A folder with two views, `a.npy` and `b.npy`, and the small run that was trained on them."""
    folder = tmp_path_factory.mktemp("finished")
    views = []
    for seed, name in enumerate(("a", "b")):
        np.save(folder / f"{name}.npy", np.random.default_rng(seed).standard_normal((60, 5)))
        views.append(str(folder / f"{name}.npy"))
    options = ["--data_options.batch_size", "20", "--out", str(folder / "run")]
    assert main(["train", *QUICK, "--views", *views, *options]) == 0
    return folder


@pytest.fixture
def copy(finished, tmp_path, monkeypatch):
    """A copy of the run, `run` in the working directory."""
    shutil.copytree(finished / "run", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


@pytest.fixture
def refused(capsys):
    """Run a command that must fail with exit code 2 and one line on standard error; return the line."""

    def run(*words):
        code = main([str(word) for word in words])
        output = capsys.readouterr()
        assert code == 2, output
        (line,) = output.err.strip().splitlines()
        assert "Traceback" not in output.out
        return line

    return run
