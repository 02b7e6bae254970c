"""Small recordings in the real formats: EDF and EDF+ by pyedflib, .mat, .hea and annotations by wfdb."""

from __future__ import annotations

import os

import numpy as np
import pyedflib
import pytest
import wfdb
from scipy.io import savemat

from m3g.cli import main
from m3g.data import Signals
from m3g.data.signals import prepare_recordings

PHYSIONET = ["F3-M2", "F4-M1", "C3-M2", "C4-M1", "O1-M2", "O2-M1", "E1-M2", "SaO2"]


def wave(seconds, rate, frequency):
    return 50 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)


def write_sleep_edf(
    folder, name, *, seconds=200, rate=100, names=("EEG Fpz-Cz", "EOG horizontal", "EEG Pz-Oz"), hypnogram=True
):
    """A night: 20 s unscored, 70 s awake, 60 s stage 4, 30 s movement, then stage R until the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with pyedflib.EdfWriter(str(folder / f"{name}E0-PSG.edf"), len(names)) as edf:
        for c, label in enumerate(names):
            header = {"label": label, "dimension": "uV", "sample_frequency": rate, "physical_max": 500.0,
                      "physical_min": -500.0, "digital_max": 2047, "digital_min": -2048, "transducer": "",
                      "prefilter": ""}  # fmt: skip
            edf.setSignalHeader(c, header)
        edf.writeSamples([wave(seconds, rate, 1 + c) for c in range(len(names))])
    if hypnogram:
        with pyedflib.EdfWriter(str(folder / f"{name}EC-Hypnogram.edf"), 0, pyedflib.FILETYPE_EDFPLUS) as edf:
            edf.writeAnnotation(0, 20, "Sleep stage ?")
            edf.writeAnnotation(20, 70, "Sleep stage W")
            edf.writeAnnotation(90, 60, "Sleep stage 4")
            edf.writeAnnotation(150, 15, "Movement time")
            edf.writeAnnotation(165, 600, "Sleep stage R")


def write_physionet(folder, name, *, seconds=200, rate=200, names=PHYSIONET, annotated=True):
    """A recording that is first scored at 30 s: W, N1 at 90 s with an arousal in it, N2 at 120 s until the end."""
    home = folder / name
    home.mkdir(parents=True, exist_ok=True)
    signals = np.stack([wave(seconds, rate, 1 + c) for c in range(len(names))], axis=1)
    here = os.getcwd()
    os.chdir(home)  # wfdb writes beside the working folder only
    try:
        wfdb.wrsamp(
            name, fs=rate, units=["uV"] * len(names), sig_name=list(names), p_signal=signals, fmt=["16"] * len(names)
        )
        # The challenge's .mat files are MATLAB 4: 24 bytes, then the samples as in a .dat file.
        digital = wfdb.rdrecord(name, physical=False).d_signal.astype(np.int16)
        savemat(f"{name}.mat", {"val": digital.T}, format="4")
        (home / f"{name}.dat").unlink()
        header = home / f"{name}.hea"
        header.write_text(header.read_text().replace(f"{name}.dat 16 ", f"{name}.mat 16+24 "))
        if annotated:
            times = np.array([30, 90, 95, 120])
            notes = ["W", "N1", "(arousal_rera", "N2"]
            wfdb.wrann(name, "arousal", times * rate, ["+"] * 4, aux_note=notes)
    finally:
        os.chdir(here)


def test_sleep_edf_recordings_are_prepared(tmp_path):
    for subject in range(5):
        for night in (1, 2):
            write_sleep_edf(tmp_path / "raw", f"SC4{subject:02}{night}")
    prepared = prepare_recordings("sleep-edf", tmp_path / "raw", tmp_path / "out")
    assert (len(prepared.files), prepared.num_new, prepared.skipped) == (10, 10, {})
    with np.load(prepared.files[0]) as night:
        assert night["signals"].shape == (5, 2, 3000)
        assert night["label"].tolist() == ["W", "W", "N3", "N3", "R"]
        assert night["channels"].tolist() == ["Fpz-Cz", "Pz-Oz"]
        assert str(night["subject"]) == "SC400"
        # without the window that starts at 20 s and the channel between them
        np.testing.assert_allclose(night["signals"][0, 1], wave(200, 100, 3)[2000:5000], atol=0.3)
        np.testing.assert_allclose(night["signals"][4, 0], wave(200, 100, 1)[16500:19500], atol=0.3)
    data = Signals(tmp_path / "out", splits=prepared.split, batch_size=4)
    assert [data.num_rows(split) for split in ("train", "val", "test")] == [30, 10, 10]
    assert data.class_names == ["N3", "R", "W"]
    assert data.view_shapes == [(1, 3000)] * 2


def test_physionet2018_recordings_are_prepared(tmp_path):
    for number in range(5):
        write_physionet(tmp_path / "raw", f"tr03-{number:04}")
    prepared = prepare_recordings("physionet2018", tmp_path / "raw", tmp_path / "out")
    with np.load(prepared.files[2]) as recording:
        assert recording["signals"].shape == (5, 6, 3000)  # from 30 s on, and 20 s at the end fill no window
        assert recording["label"].tolist() == ["W", "W", "N1", "N2", "N2"]
        assert recording["channels"].tolist() == PHYSIONET[:6]
        assert str(recording["subject"]) == "tr03-0002"
        expected = wave(200, 100, 6)[12000:15000]  # 200 Hz became 100 Hz
        np.testing.assert_allclose(recording["signals"][3, 5], expected, atol=0.5)
    data = Signals(tmp_path / "out", splits=prepared.split, batch_size=4)
    assert [data.num_rows(split) for split in ("train", "val", "test")] == [20, 5, 0]


def test_other_names_and_rates_of_channels_are_read(tmp_path):
    write_sleep_edf(tmp_path / "raw", "SC4001", rate=256, names=("FPZ-CZ", "EEG PZ OZ"))
    write_sleep_edf(tmp_path / "raw", "SC4011", rate=100)
    write_sleep_edf(tmp_path / "raw", "SC4021", rate=50)
    files = prepare_recordings("sleep-edf", tmp_path / "raw", tmp_path / "out").files
    for file in files:
        with np.load(file) as night:
            np.testing.assert_allclose(night["signals"][1, 0], wave(200, 100, 1)[5000:8000], atol=1.0)
    write_sleep_edf(tmp_path / "raw", "SC4031", names=("EEG C3-A2", "EEG C4-A1"))
    with pytest.raises(
        ValueError, match=r"got 'SC4031' \(channels must be names that occur once in the recording \(EEG C3-A2"
    ):
        prepare_recordings("sleep-edf", tmp_path / "raw", tmp_path / "out")
    (tmp_path / "raw" / "SC4001E0-PSG.edf").rename(tmp_path / "raw" / "night-PSG.edf")
    with pytest.raises(ValueError, match=r"named like SC4001E0-PSG.edf, got 'night-PSG.edf'"):
        prepare_recordings("sleep-edf", tmp_path / "raw", tmp_path / "out")


def damaged_folder(tmp_path):
    for subject in range(4):
        write_sleep_edf(tmp_path / "raw", f"SC4{subject:02}1", hypnogram=subject != 3)
    write_sleep_edf(tmp_path / "raw", "SC4041")
    cut = tmp_path / "raw" / "SC4041E0-PSG.edf"
    cut.write_bytes(cut.read_bytes()[:5000])
    return tmp_path / "raw"


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


def test_the_command_stops_at_a_damaged_recording_unless_skipped(tmp_path, capsys):
    raw = damaged_folder(tmp_path)
    command = ["prepare", "sleep-edf", str(raw), "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert "m3g: error: recordings must be readable, got 'SC4031'" in capsys.readouterr().err
    assert main([*command, "--skip"]) == 0
    assert "3 recordings" in capsys.readouterr().out
    assert main(["prepare", "sleep-edf", str(tmp_path / "out"), "--out", str(tmp_path / "more")]) == 2
    assert "must contain recordings of sleep-edf, got none" in capsys.readouterr().err
