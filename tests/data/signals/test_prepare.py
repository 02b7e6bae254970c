"""Prepared recordings: damaged, interrupted and changed ones, and splits by subject."""

from __future__ import annotations

import pytest

from m3g.data import Signals
from m3g.data.signals import prepare_recordings
from recordings import damaged_folder, write_physionet, write_sleep_edf


def test_unusable_recordings_stop_the_command_or_are_listed(tmp_path):
    raw, out = damaged_folder(tmp_path), tmp_path / "out"
    with pytest.raises(ValueError, match=r"got 'SC4031' \(recordings must have a hypnogram, got none for .*SC4031E0"):
        prepare_recordings("sleep-edf", raw, out)
    prepared = prepare_recordings("sleep-edf", raw, out, skip=True)
    assert [file.stem for file in prepared.files] == ["SC4001", "SC4011", "SC4021"]
    assert sorted(prepared.skipped) == ["SC4031", "SC4041"]
    named = (out / "skipped.csv").read_text()
    assert 'SC4031,"recordings must have a hypnogram' in named
    assert "SC4041," in named
    assert "SC403" not in prepared.split.read_text()
    write_physionet(tmp_path / "physionet", "tr03-0001", annotated=False)
    with pytest.raises(ValueError, match=r"must have stages, got no tr03-0001.arousal"):
        prepare_recordings("physionet2018", tmp_path / "physionet", out)
    with pytest.raises(ValueError, match=r"at least one readable recording, got 1 unreadable ones"):
        prepare_recordings("physionet2018", tmp_path / "physionet", out, skip=True)


def test_finished_recordings_are_kept_and_changed_ones_repeated(tmp_path, monkeypatch):
    raw, out = tmp_path / "raw", tmp_path / "out"
    for subject in range(4):
        write_sleep_edf(raw, f"SC4{subject:02}1")

    from m3g.data.signals import sleep_edf

    read, seen = sleep_edf.read, []

    def interrupted(source, channels):
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(source.name)
        return read(source, channels)

    monkeypatch.setattr(sleep_edf, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare_recordings("sleep-edf", raw, out)
    assert sorted(path.name for path in out.iterdir()) == ["SC4001.npz", "SC4011.npz"]
    monkeypatch.setattr(sleep_edf, "read", read)
    assert prepare_recordings("sleep-edf", raw, out).num_new == 2
    assert prepare_recordings("sleep-edf", raw, out).num_new == 0
    write_sleep_edf(raw, "SC4011", seconds=170)
    assert prepare_recordings("sleep-edf", raw, out).num_new == 1
    assert prepare_recordings("sleep-edf", raw, out, seconds=10.0).num_new == 4
    (out / "SC4021.npz").write_bytes(b"half a file")
    assert prepare_recordings("sleep-edf", raw, out, seconds=10.0).num_new == 1


def test_a_subject_in_two_splits_is_an_error(tmp_path):
    for subject in range(5):
        write_sleep_edf(tmp_path / "raw", f"SC4{subject:02}1")
    prepared = prepare_recordings("sleep-edf", tmp_path / "raw", tmp_path / "out")
    lines = prepared.split.read_text().splitlines()
    for wrong, words in [
        ([*lines, "SC400,train", "SC400,test"], "every subject to one split, got 'SC400' in"),
        (lines[:-1], "name every subject, got no line for 'SC404'"),
        ([*lines, "SC405,holdout"], r"lines 'subject,train' \(or val, test\), got 'SC405,holdout'"),
        (["who,where", *lines[1:]], "columns subject,split"),
        ([lines[0], *(f"SC40{i},test" for i in range(5))], "assign at least one subject to train"),
    ]:
        prepared.split.write_text("\n".join(wrong) + "\n")
        with pytest.raises(ValueError, match=words):
            Signals(tmp_path / "out", splits=prepared.split)
    with pytest.raises(ValueError, match=r"splits must be a .csv file that exists"):
        Signals(tmp_path / "out", splits=tmp_path / "none.csv")
