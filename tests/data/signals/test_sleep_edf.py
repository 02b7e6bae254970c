"""Sleep-EDF recordings."""

from __future__ import annotations

import numpy as np
import pytest

from m3g.data import Signals
from m3g.data.signals import prepare_recordings
from recordings import wave, write_sleep_edf


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
