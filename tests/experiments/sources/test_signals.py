"""Recordings for `m3g reproduce eeg`: windows of `m3g prepare` instead of the stored subsets."""

import numpy as np
import pytest

from experiments.miniature import small_runs
from m3g.experiments.sources import signals
from m3g.experiments.sources.files import MissingData


def write_windows(folder, channels, *, subjects=8, windows=12, time=300):
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for subject in range(subjects):
        label = np.array(["W", "N2"])[np.arange(windows) % 2]
        wave = np.sin(np.arange(time) / np.where(label == "W", 2.0, 6.0)[:, None])
        data = wave[:, None] + 0.1 * random.normal(size=(windows, len(channels), time))
        np.savez(
            folder / f"SC4{subject:02}1.npz",
            signals=data.astype(np.float32),
            label=label,
            subject=np.array(f"SC4{subject:02}"),
            channels=np.array(channels),
        )


def test_features_of_prepared_windows_distinguish_stages(tmp_path):
    write_windows(tmp_path / "sleep", ["marker", *signals.SENSORS.values()])
    sleep = signals.read_sleep(tmp_path)
    assert sleep["EOG"].shape == (96, signals.BANDS)
    awake = sleep["stage"] == "W"
    assert not set(sleep["EOG"][awake].argmax(1)) & set(sleep["EOG"][~awake].argmax(1))
    assert len(set(sleep["subject"])) == 8


def test_windows_with_other_channels_are_named(tmp_path):
    write_windows(tmp_path / "sleep", ["Fpz-Cz", "Pz-Oz"])
    with pytest.raises(MissingData, match=r"with the six sensors .* got the channels Fpz-Cz, Pz-Oz"):
        signals.read_sleep(tmp_path)
    with pytest.raises(MissingData, match=r"windows of m3g prepare physionet2018 \(pretrain/\*.npz\)"):
        signals.prepare_windows(tmp_path, tmp_path / "out")


def test_a_laptop_run_transfers_an_encoder_between_sets_of_windows(tmp_path):
    write_windows(tmp_path / "pretrain", ["F3-M2", "F4-M1", "C3-M2"])
    write_windows(tmp_path / "sleep", ["Fpz-Cz", "Pz-Oz"])

    def keep(spec):
        return spec.labels["data"] == "windows" and spec.labels["arm"] in ("m3g, n = 16, untuned", "raw")

    text, specs = small_runs("eeg", tmp_path, tmp_path / "out", keep=keep)
    assert len(specs) == 2
    assert "Sleep stages from some windows of raw signals" in text
