"""New rows are read like those of the training."""

import numpy as np

from frames import FRAME, WRITERS
from m3g.cli import main


def test_new_rows_are_read_in_the_same_way(tmp_path):
    FRAME.to_csv(tmp_path / "plain.csv", index=False)
    quick = ["--loop.epochs", "1", "--heads.hidden", "8", "--loop.evaluate_every", "0"]
    assert main(["train", *quick, "--table", str(tmp_path / "plain.csv"), "--out", str(tmp_path / "run")]) == 0
    for name, write in WRITERS.items():
        write(FRAME[:3], tmp_path / name)
        words = ["embed", str(tmp_path / "run"), "--out", str(tmp_path / f"{name}.npz"), "--table"]
        assert main([*words, str(tmp_path / name)]) == 0
    found = [np.load(tmp_path / f"{name}.npz")["embeddings"] for name in WRITERS]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-6)
