"""`m3g report` and `m3g compare`, as a user calls them."""

import numpy as np
import pytest

from m3g.cli import main

QUICK = ["--loop.epochs", "2", "--encoder_options.width", "8", "--heads.hidden", "8", "--loop.evaluate_every", "1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs on three views of 60 objects whose labels contain markup."""
    folder = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    objects = rng.standard_normal((60, 6))
    for name, d in (("x", 7), ("y", 8), ("z", 9)):
        np.save(folder / f"{name}.npy", objects @ rng.standard_normal((6, d)))
    np.save(folder / "labels.npy", np.where(objects[:, 0] > 0, "<img src=x onerror=1>", "down"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for loss in ("m3g", "infonce-pwe"):
            words = ["--labels", "labels.npy", "--data_options.batch_size", "40", "--loss", loss, "--out", loss]
            assert main(["train", "--views", "x.npy", "y.npy", "z.npy", *QUICK, *words]) == 0
    return folder


@pytest.fixture
def working_folder(runs, monkeypatch):
    monkeypatch.chdir(runs)
    return runs


def test_a_report_of_two_runs_compares_them(working_folder, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["report", "m3g", "infonce-pwe", "--out", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    for part in (
        "Comparison",
        "m3g train --config FILE",
        "loss: infonce-pwe",
        "R@1, % (row: query",
        "with random weights",
    ):
        assert part in text
    assert "<img" not in text
    assert "http://" not in text
    assert "https://" not in text


def test_compare_prints_intervals(working_folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["compare", "m3g", "infonce-pwe"]) == 0
    output = capsys.readouterr().out
    assert "recall_at_1" in output
    assert "95 % interval" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report"], "runs"),
        (["report", "missing"], "there is none at missing"),
        (["report", "m3g", "m3g"], "m3g twice."),
        (["report", "m3g", "--out", "page.txt"], "--out must be a file name with the ending .html"),
        (["report", "."], "no config.yaml"),
        (["compare", "m3g"], "runs must be at least 2 folders"),
        (["compare", "m3g", "missing"], "there is none at missing"),
    ],
)
def test_wrong_arguments_are_rejected(working_folder, capsys, arguments, message):
    assert main(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("m3g: error: ")
    assert message in error
    assert "\n" not in error
