"""Tables that commands write."""

import csv

import numpy as np
import pytest

from m3g.cli import main
from m3g.training.mismatch.audit import Audit
from m3g.training.mismatch.entries import Entry
from m3g.training.runs.files import write_csv


@pytest.mark.parametrize("command", ["match", "audit"])
def test_cells_of_csv_files_are_not_formulas(command, tmp_path, copy):
    """Names of files and views are untrusted."""
    cells = ["=cmd", "+1+1", "-2+3", "@x", "\tx", "\rx", "-1.5", "+2", "plain"]
    write_csv(tmp_path / "t.csv", ["=head", *cells[1:]], [cells])
    head, row = list(csv.reader((tmp_path / "t.csv").read_text().splitlines(keepends=True)))
    assert head[0] == "'=head"
    assert row == ["'=cmd", "'+1+1", "'-2+3", "'@x", "'\tx", "'\nx", "-1.5", "+2", "plain"]
    if command == "match":
        for seed, name in enumerate(("=a", "-b")):
            np.save(tmp_path / f"{name}.npy", np.random.default_rng(seed).standard_normal((5, 3)))
        files = [str(tmp_path / f"{name}.npy") for name in ("=a", "-b")]
        assert main(["match", *files, "--out", str(tmp_path / "m.csv")]) == 0
        assert (tmp_path / "m.csv").read_text().startswith("'=a,'-b,")
    else:
        (copy / "mismatch.csv").write_text("row,view,reliability,log_odds\n7,=b,0.1,-2.2\n")
        audit = "m3g.training.mismatch.audit.audit"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(audit, lambda run, **_: Audit([(Entry(7, "=b", 0.1, -2.2), None)]))
            assert main(["audit", str(copy), "--count", "1", "--out", str(tmp_path / "a.csv")]) == 0
        assert "7,'=b,0.100" in (tmp_path / "a.csv").read_text()
