"""Protection of a run against damage, edits and a second process, and interruption before the first checkpoint."""

import shlex
import subprocess
import sys

import pytest

import m3g
from m3g.cli import main
from m3g.training.loop.logs import Table
from m3g.training.runs.files import append_text, atomic
from m3g.training.runs.folder import Run, environment
from m3g.training.settings.config import Config

HOLD = "import filelock, sys; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print('held', flush=True); input()"


@pytest.mark.parametrize("position", [0.2, 0.5, 0.99])
def test_damaged_weights_are_reported_by_all_readers(copy, error_line, position):
    content = bytearray((copy / "model.safetensors").read_bytes())
    content[int(position * len(content))] ^= 4
    (copy / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="its SHA-256 differs"):
        m3g.load(copy)
    for command in (["evaluate", "run"], ["embed", "run", "--out", "e.npz"]):
        assert "its SHA-256 differs: the file is damaged" in error_line(*command)


def test_a_folder_that_is_not_a_run_is_not_loaded(copy, tmp_path):
    with pytest.raises(ValueError, match=r"^run must be the folder of a run, but there is none at nope\.$"):
        m3g.load("nope")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty has no model.json: check the name\.$"):
        m3g.load("empty")
    (copy / "model.json").unlink()
    with pytest.raises(ValueError, match=r"run has no model.json: finish .* with m3g train --resume run\.$"):
        m3g.load("run")


@pytest.mark.parametrize("run", [None, 5])
def test_a_run_must_be_a_path(run):
    with pytest.raises(ValueError, match="run must be the folder of a run, got"):
        m3g.load(run)


def test_settings_of_an_older_version_are_read_or_an_error_of_one_line(copy, error_line):
    text = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(text.replace("mismatch: false\n", "", 1))  # a setting of a later version
    assert main(["evaluate", "run"]) == 0
    (copy / "config.yaml").write_text(text + "momentum: 0.9\n")  # a setting that was removed
    assert "config.yaml must have only the names" in error_line("evaluate", "run")


def test_edited_settings_are_reported_and_can_be_accepted(copy, error_line, capsys):
    text = (copy / "config.yaml").read_text()
    steps = len(Table(copy / "metrics.csv").rows())
    (copy / "config.yaml").write_text(text.replace("epochs: 1\n", "epochs: 2\n", 1))
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file() and path.name != ".lock"}
    line = error_line("train", "--resume", "run")
    assert "config.yaml must match the settings" in line
    assert "loop.epochs was 1 and is 2" in line
    assert "--accept_changes" in line
    assert {path: path.read_bytes() for path in before} == before
    assert main(["train", "--resume", "run", "--accept_changes"]) == 0, capsys.readouterr().err
    assert len(Table(copy / "metrics.csv").rows()) == 2 * steps
    assert main(["train", "--resume", "run"]) == 0  # the accepted settings are those of the run


def test_truncated_settings_are_reported(copy, error_line):
    text = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(text[: text.index("loop:")])
    assert "loop.epochs was 1 and is " in error_line("train", "--resume", "run")


def test_a_run_is_resumed_by_one_process_at_a_time(copy, error_line):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(copy / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"held\n"
        assert "another process is training in it" in error_line("train", "--resume", "run")
        other.kill()
    assert main(["train", "--resume", "run"]) == 0  # the system released the lock


def test_leftovers_of_a_killed_start_are_removed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    leftover = tmp_path / ".run.123.tmp"
    (leftover / "checkpoints").mkdir(parents=True)
    (tmp_path / ".run.124.tmp").symlink_to(outside)
    run = Run("run")
    run.create(Config())
    run.release()
    assert not leftover.exists()
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("write", [lambda path: atomic(path).__enter__(), lambda path: append_text(path, "x")])
def test_a_file_that_cannot_be_written_is_an_error(write):
    with pytest.raises(ValueError, match=r"/proc/m3g.csv must be a file that can be written, got an error"):
        write("/proc/m3g.csv")


def test_a_run_folder_that_cannot_be_written_is_an_error(tmp_path, monkeypatch, error_line):
    monkeypatch.chdir(tmp_path)
    assert "--out must be a folder that can be created, but /proc/run cannot" in error_line(
        "train", "--out", "/proc/run"
    )


def test_the_command_of_a_run_can_be_repeated(monkeypatch):
    words = ["train", "--view.left.columns", "[a, b]"]
    for program in ("/opt/bin/m3g", "/opt/m3g/__main__.py"):  # as installed, and by python -m m3g
        monkeypatch.setattr("sys.argv", [program, *words])
        assert shlex.split(environment()["command"]) == ["m3g", *words]
