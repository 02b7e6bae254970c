"""Output of the commands: separate folders, and tables without formulas."""

import sys

import pytest

from m3g.cli import main


def test_more_devices_than_exist_are_rejected(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = refused("train", "--loop.devices", "9999", "--loop.accelerator", "cpu")
    assert "loop.devices must be at most" in line
    assert "got 9999" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0), ("98", 0)])
def test_one_process_of_many_reports_an_interrupt(monkeypatch, capsys, rank, lines):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["m3g.cli.main"], "_dispatch", interrupted)
    monkeypatch.setenv("RANK", rank)
    assert main(["losses"]) == 130
    assert len(capsys.readouterr().err.splitlines()) == lines
