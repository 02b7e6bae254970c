"""Division of a recording into windows."""

from __future__ import annotations

import numpy as np

from m3g.data.signals import Recording, Stage
from m3g.data.signals.recording import to_windows


def test_incomplete_windows_are_skipped():
    signal = np.arange(100.0)
    signal[35] = np.nan
    recording = Recording([signal, np.arange(100.0)], [1.0, 1.0], [Stage(0, 50, "W"), Stage(50, 75, "R")])
    windows, stages = to_windows(recording, rate=1, seconds=10)
    assert stages.tolist() == ["W", "W", "W", "W", "R", "R"]
    assert windows[:, 1, 0].tolist() == [0, 10, 20, 40, 50, 60]
