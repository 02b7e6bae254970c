"""Help texts, the overview of commands, and the explanation of every option."""

import pytest

from m3g import losses
from m3g.cli import main
from m3g.data import available


@pytest.mark.parametrize(
    "command",
    [
        "train",
        "evaluate",
        "embed",
        "report",
        "compare",
        "match",
        "search",
        "flow",
        "losses",
        "data",
        "demo",
        "bench",
        "reproduce",
        "push",
    ],
)
def test_help_is_shown(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert "usage: m3g " + command in capsys.readouterr().out


def test_the_overview_names_every_command(capsys):
    assert main([]) == 0
    assert "m3g train --views a.npy b.npy c.npy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "name"), [*(("losses", name) for name in losses.available()), *(("data", name) for name in available())]
)
def test_every_option_is_explained(capsys, monkeypatch, command, name):
    monkeypatch.setenv("COLUMNS", "200")
    assert main([command, name]) == 0
    output = capsys.readouterr().out
    assert "_options.NAME" in output
    assert ">>>" not in output
    options = [line for line in output.splitlines() if line.startswith("│ ") and not line.startswith("│   ")]
    assert len(options) >= 3
    for line in options:
        assert line.strip("│ ").count("│") == 2, f"{line} has no explanation"
