"""New objects with some of the views of a run."""

import numpy as np

from m3g.cli import main


def test_embed_accepts_files_of_some_views(finished, tmp_path, error_line):
    run = finished / "run"
    np.save(tmp_path / "b.npy", np.ones((3, 5)))
    np.save(tmp_path / "other.npy", np.ones((3, 5)))
    out = tmp_path / "new.npz"
    assert main(["embed", str(run), "--out", str(out), "--views", str(tmp_path / "b.npy")]) == 0
    assert np.load(out)["mask"].tolist() == [[False] * 3, [True] * 3]
    assert "NAME=FILE" in error_line("embed", run, "--out", tmp_path / "x.npz", "--views", tmp_path / "other.npy")
    table_option = ["--table", tmp_path / "b.csv"]
    (tmp_path / "b.csv").write_text("x\n1\n")
    assert "views must be arrays" in error_line("embed", run, "--out", tmp_path / "x.npz", *table_option)
    assert not (tmp_path / "x.npz").exists()
