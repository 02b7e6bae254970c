"""`m3g bench` prints and writes what was measured."""

import json

from m3g.cli import main
from m3g.experiments import overhead


def test_memory_is_printed_and_written(tmp_path, monkeypatch, capsys):
    rows = [{"students": s, "bytes": s * 2.0**20} for s in (1, 2)]
    monkeypatch.setattr(overhead, "memory", lambda k, n: rows)
    assert main(["bench", "memory", "--max_k", "2", "--images", "1", "--out", str(tmp_path)]) == 0
    assert "50 %" in capsys.readouterr().out
    assert json.loads((tmp_path / "memory.json").read_text())["rows"] == rows


def test_the_fraction_of_a_step_is_printed_written_and_drawn(tmp_path, monkeypatch, capsys):
    measured = []

    def measure(*, ks, **settings):
        measured.append(settings)
        return [{"k": k, "loss": 0.01, "network": 1.0, "share": 0.01 * k} for k in ks]

    monkeypatch.setattr(overhead, "overhead", measure)
    assert main(["bench", "overhead", "--max_k", "3", "--temperature", "0.2", "--out", str(tmp_path)]) == 0
    assert "3.000 %" in capsys.readouterr().out
    assert measured == [{"n": 64, "d": 256, "epsilon": None, "temperature": 0.2, "images": 2, "repeats": 3}]
    assert [row["k"] for row in json.loads((tmp_path / "overhead.json").read_text())["rows"]] == [2, 3]
    assert (tmp_path / "overhead.png").is_file()
