"""Options of `m3g flow`."""

import pytest

from m3g.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n", "1"], "n must be a whole number of at least 2, got 1"),
        (["--k", "1"], "k must be a whole number of at least 2, got 1"),
        (["--n", "20", "--k", "4"], "n ** k must be at most 5000"),
        (["--space", "cube"], "space must be one of"),
        (["--loss", "vicreg"], "loss in the plane must be one of"),
        (["--loss", "byol-pwe", "--space", "sphere"], "loss must be one of"),
        (["--loss", "m3g", "m3g"], "--loss must be one loss or two different ones"),
        (["--epsilon", "-1"], "epsilon must be a positive"),
        (["--cost", "nonsense"], "cost must be one of"),
        (["--steps", "0"], "steps must be"),
        (["--frames", "1"], "--frames must be"),
        (["--seed", "-1"], "seed must be"),
        (["--out", "."], "--out must be a folder that does not exist yet"),
    ],
)
def test_wrong_arguments_are_rejected(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["flow", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("m3g: error: ")
    assert message in error
    assert "\n" not in error
    assert list(tmp_path.iterdir()) == []
