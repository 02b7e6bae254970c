"""Two processes train like one with the full batch."""

import pytest

from forked import SAME, SMALL, losses
from m3g.cli import main
from m3g.training.mismatch.entries import read_entries


@pytest.mark.slow
@pytest.mark.timeout(1500)  # processes that each load everything, on a machine that may be busy
def test_two_processes_train_like_one_with_the_full_batch(tmp_path, four_views, torchrun, command):
    common = ["train", *four_views, "--loop.epochs", "4", *SMALL, *SAME, "--loss_options.gather", "true"]
    assert main([*common, "--out", "one", "--data_options.batch_size", "32"]) == 0
    for start, out, chunks in ((torchrun, "two", ["--loop.chunk_size", "5"]), (command, "started", [])):
        code, output = start(*common, "--data_options.batch_size", "16", "--out", out, *chunks)
        assert code == 0, output
        assert "threads left" not in output
    assert len(losses(tmp_path / "one")) == 12
    for name in ("two", "started"):  # by torchrun, and by the command itself
        assert losses(tmp_path / name) == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
        assert (tmp_path / name / "results.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_two_processes_exclude_the_same_entries_as_one(tmp_path, monkeypatch, torchrun):
    """Excluded entries depend on the row, and every process evaluates all rows, so they train like one process."""
    monkeypatch.chdir(tmp_path)
    common = ["train", "--loop.epochs", "6", *SMALL, *SAME, "--loss", "infonce-pwe", "--heads.hidden", "32"]
    common += ["--loss_options.gather", "true", "--data_options.views", "[fourier, zernike, karhunen]"]
    common += ["--data_options.swapped", "0.1", "--mismatch", "true", "--view_dropout", "0.2"]
    common += ["--data_options.val", "0.3", "--data_options.test", "0"]  # nothing is measured at the end
    common += ["--optim.learning_rate", "5e-3", "--optim.warmup_epochs", "1"]
    # The order of summation changes the rounding, which training amplifies: in float32 to 1e-2 after 42 steps.
    common += ["--loop.precision", "64-true"]
    assert main([*common, "--out", "one", "--data_options.batch_size", "200"]) == 0
    code, output = torchrun(*common, "--out", "two", "--data_options.batch_size", "100")
    assert code == 0, output
    assert len(losses(tmp_path / "one")) == 42
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-9)
    one, two = ({(e.row, e.view): e.reliability for e in read_entries(tmp_path / name)} for name in ("one", "two"))
    assert two == pytest.approx(one, abs=1e-4)
    assert min(one.values()) < 0.1  # some entries are excluded
