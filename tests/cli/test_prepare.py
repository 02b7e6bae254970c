"""`m3g prepare` stops at a damaged recording unless it is skipped."""

from __future__ import annotations

from m3g.cli import main
from recordings import damaged_folder


def test_the_command_stops_at_a_damaged_recording_unless_skipped(tmp_path, capsys):
    raw = damaged_folder(tmp_path)
    command = ["prepare", "sleep-edf", str(raw), "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert "m3g: error: recordings must be readable, got 'SC4031'" in capsys.readouterr().err
    assert main([*command, "--skip"]) == 0
    assert "3 recordings" in capsys.readouterr().out
    assert main(["prepare", "sleep-edf", str(tmp_path / "out"), "--out", str(tmp_path / "more")]) == 2
    assert "must contain recordings of sleep-edf, got none" in capsys.readouterr().err
