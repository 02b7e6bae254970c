"""Recordings of the PhysioNet Challenge 2018."""

from __future__ import annotations

import numpy as np

from m3g.data import Signals
from m3g.data.signals import prepare_recordings
from recordings import PHYSIONET, wave, write_physionet


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
