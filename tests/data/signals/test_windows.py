"""Windows of recordings: channels as views, and splits by subject."""

import numpy as np
import pytest
import torch

from m3g.data import Signals

NAMES = np.array(["F3", "F4", "C3", "C4"])


@pytest.fixture
def recordings(tmp_path):
    """Twelve recordings of six subjects, four channels of 50 samples; values encode recording and channel."""
    time = np.sin(np.arange(50))
    data = time + 100 * np.arange(12)[:, None, None] + np.arange(4)[None, :, None]
    subject = np.array([f"s{i // 2}" for i in range(12)])
    path = tmp_path / "eeg.npz"
    np.savez(path, signals=data.astype(np.float16), channels=NAMES, subject=subject, label=np.arange(12) % 2)
    return path


def test_channels_are_views_and_windows_are_scaled(recordings):
    data = Signals([recordings], channels=["C4", "F3"], window=20, batch_size=4)
    assert data.view_names == ["C4", "F3"]
    assert data.view_shapes == [(1, 20)] * 2
    assert data.class_names == ["0", "1"]
    total = sum(data.num_rows(split) for split in ("train", "val", "test"))
    assert total == 24  # two windows of 20 in 50 samples
    for split in ("train", "val", "test"):
        for view in data.arrays(split)[0]:
            torch.testing.assert_close(view.mean(-1), torch.zeros(len(view), 1), atol=1e-3, rtol=0)
            torch.testing.assert_close(view.std(-1, correction=0), torch.ones(len(view), 1), atol=1e-3, rtol=0)


def test_a_constant_channel_becomes_zero(tmp_path):
    signals = np.random.default_rng(0).normal(size=(9, 2, 3000)).astype(np.float32)
    signals[:, 1] = 0.1  # its mean in float32 is not exactly 0.1
    np.savez(tmp_path / "eeg.npz", signals=signals, subject=np.arange(9))
    views, _, _ = Signals(tmp_path / "eeg.npz").arrays("train")
    assert not views[1].any()
    assert views[0].std(-1).min() > 0.9


def test_no_subject_is_in_two_splits(recordings):
    data = Signals(recordings, window=25, val=0.2, test=0.3)
    subjects = [set((data.datasets[split].index // 4).tolist()) for split in ("train", "val", "test")]
    assert all(subjects)
    assert sum(map(len, subjects)) == len(set.union(*subjects)) == len(data.subjects) == 6


def test_there_may_be_one_file_per_subject(tmp_path):
    for i in range(5):
        np.savez(tmp_path / f"subject{i}.npz", signals=np.random.default_rng(i).normal(size=(3, 30)))
    data = Signals(sorted(tmp_path.glob("*.npz")), window=10, channels=[2, 0], batch_size=2)
    assert data.view_names == ["2", "0"]
    assert data.subjects == [f"subject{i}" for i in range(5)]
    assert data.num_classes is None
    assert next(iter(data.train_dataloader()))["views"][0].shape == (2, 1, 10)


def test_dropped_samples_of_a_recording_are_reported(recordings, caplog):
    with caplog.at_level("INFO", logger="m3g.data.signals.windows"):
        Signals(recordings, window=20)
    assert "the last 10 of 50 samples" in caplog.text


def test_errors_of_invalid_signals_are_one_sentence(recordings, tmp_path):
    good = np.random.default_rng(0).normal(size=(4, 3, 10))
    hole = good.copy()
    hole[2, 1, 5] = np.nan

    def write(**arrays):
        np.savez(tmp_path / "bad.npz", **arrays)
        return tmp_path / "bad.npz"

    with pytest.raises(ValueError, match="at least one"):
        Signals([])
    with pytest.raises(ValueError, match="files that exist"):
        Signals(tmp_path / "none.npz")
    (tmp_path / "damaged.npz").write_bytes(recordings.read_bytes()[:-40])
    with pytest.raises(ValueError, match="damaged"):
        Signals(tmp_path / "damaged.npz")
    with pytest.raises(ValueError, match="channels must be some of F3, F4, C3, C4, got 'Cz'"):
        Signals(recordings, channels=["F3", "Cz"])
    with pytest.raises(ValueError, match="channels must be at least 2, got 1"):
        Signals(recordings, channels=["F3"])
    with pytest.raises(ValueError, match="channels must be distinct, got F3, F3"):
        Signals(recordings, channels=["F3", "F3"])
    with pytest.raises(ValueError, match="at least 2 samples"):
        Signals(recordings, window=1)
    with pytest.raises(ValueError, match="at most 50, the number of samples"):
        Signals(recordings, window=60)
    with pytest.raises(ValueError, match=r"name of an array in .*\(X\), got 'signals'"):
        Signals(write(X=good))
    with pytest.raises(ValueError, match="shape \\(recordings, channels, time\\)"):
        Signals(write(signals=good[0, 0]))
    with pytest.raises(ValueError, match="'channels' must be 3 names, one per channel, got 2"):
        Signals(write(signals=good, channels=np.array(["F3", "F4"])))
    for other in (good + 1j, good.astype(str)):
        with pytest.raises(ValueError, match="must be real numbers"):
            Signals(write(signals=other))
    with pytest.raises(ValueError, match="got NaN in row 0"):
        Signals(write(signals=good, subject=np.arange(4), label=np.full(4, np.nan)))
    with pytest.raises(ValueError, match="window 2, channel 1"):
        Signals(write(signals=hole))
    with pytest.raises(ValueError, match="'label' must have one entry per recording"):
        Signals(write(signals=good, label=np.zeros(3)))
    with pytest.raises(ValueError, match="without pickle"):
        Signals(write(signals=good, subject=np.array([None] * 4, dtype=object)))
    with pytest.raises(ValueError, match="leave at least one group to train on"):
        Signals(write(signals=good))
    with pytest.raises(ValueError, match=r"window, got 0, 1, 2 \(10 samples\) and F3, F4, C3, C4 \(50 samples\)"):
        Signals([recordings, write(signals=good)])
