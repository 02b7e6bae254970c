"""Files are complete or missing."""

import errno
import json

import pytest
import torch

from m3g.training.loop.checkpoint import MARK, VERSION, AtomicCheckpoints, read_checkpoint
from m3g.training.loop.logs import Table
from m3g.training.runs.files import atomic, remove_leftovers, write_json
from m3g.training.settings.config import Config


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic(path) as file:  # noqa: PT012
        file.write(b"new")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_reported_in_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"disk is full.*--resume"), atomic(tmp_path / "file"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    (tmp_path / ".last.ckpt.123.tmp").write_text("half")
    (tmp_path / "last.ckpt").write_text("whole")
    remove_leftovers(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]


def test_json_has_no_nan(tmp_path):
    write_json(tmp_path / "a.json", {"a": float("nan"), "b": torch.tensor([1.0, float("inf")]), "c": (1, "x")})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": None, "b": [1.0, None], "c": [1, "x"]}


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "checkpoints" / "last.ckpt"
    AtomicCheckpoints().save_checkpoint({MARK: VERSION, "weights": torch.arange(1000.0)}, path)
    return path


def test_a_checkpoint_is_read_back_unchanged(checkpoint):
    assert torch.equal(read_checkpoint(checkpoint)["weights"], torch.arange(1000.0))


def test_every_truncation_is_detected(checkpoint):
    whole = checkpoint.read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 40)):
        checkpoint.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="damaged or was written by another program"):
            read_checkpoint(checkpoint)


def test_a_flipped_bit_in_the_weights_is_detected(checkpoint):
    content = bytearray(checkpoint.read_bytes())
    place = content.find(torch.arange(1000.0).numpy().tobytes()) + 1234
    content[place] ^= 1
    checkpoint.write_bytes(content)
    with pytest.raises(ValueError, match="damaged or was written by another program"):
        read_checkpoint(checkpoint)


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_malicious_checkpoint_is_rejected_and_not_executed(tmp_path):
    path, trace = tmp_path / "last.ckpt", tmp_path / "trace"
    torch.save({MARK: VERSION, "state": Malicious(trace)}, path)
    with pytest.raises(ValueError, match="damaged or was written by another program"):
        read_checkpoint(path)
    assert not trace.exists()


@pytest.mark.parametrize("content", [{"state_dict": {}}, [1, 2], torch.zeros(3)])
def test_a_foreign_checkpoint_is_rejected(tmp_path, content):
    torch.save(content, tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match="was written by another program"):
        read_checkpoint(tmp_path / "last.ckpt")


def test_other_versions_and_missing_files_are_errors(tmp_path):
    with pytest.raises(ValueError, match="there is none at"):
        read_checkpoint(tmp_path / "last.ckpt")
    torch.save({MARK: 99}, tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match="has format 99"):
        read_checkpoint(tmp_path / "last.ckpt")


@pytest.fixture
def table(tmp_path):
    table = Table(tmp_path / "metrics.csv")
    for step in (1, 2, 3):
        table.append({"step": step, "loss": 0.5 * step})
    return table


def test_a_table_read_while_it_is_written_has_complete_rows_only(table, tmp_path):
    text = table.path.read_text()
    growing = Table(tmp_path / "growing.csv")
    for length in range(len(text) + 1):
        growing.path.write_text(text[:length])
        whole = max(0, text[:length].count("\n") - 1)
        assert growing.rows() == table.rows()[:whole]


def test_a_truncated_table_is_continued_from_its_last_complete_row(table, tmp_path):
    text = table.path.read_text()
    for length in range(len(text) + 1):
        cut = tmp_path / "cut.csv"
        cut.write_text(text[:length])
        Table(cut).drop_after(2)
        again = Table(cut)
        kept = [row["step"] for row in again.rows()]
        assert kept == [1, 2][: len(kept)]
        for step in range(len(kept) + 1, 4):
            again.append({"step": step, "loss": 0.5 * step})
        assert cut.read_text() == text


def test_settings_in_a_file_have_types(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("optim: {learning_rate: 1e-3, betas: [0, 0.5]}\nshared: null\n")
    assert Config.read(path).optim.learning_rate == 1e-3
    for text, message in (
        ("optim: {learning_rate: fast}", r"my.yaml: optim.learning_rate must be a number, got 'fast'"),
        ("optim: {betas: [0.9]}", "betas must be a list of 2 numbers"),
        ("optim: {betas: 0.9}", "betas must be a list of 2 numbers"),
        ("heads: {hidden: 1.5}", "hidden must be a whole number or null, got 1.5"),
        ("shared: 3", "shared must be true or false or null, got 3"),
        ("loss: [m3g]", "loss must be a string"),
        ("loop: {epochs: true}", "epochs must be a whole number or null, got True"),
        ("loss_options: 3", "loss_options must be a mapping of names to values, got 3"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            Config.read(path)
