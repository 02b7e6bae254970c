"""Images and sounds in the cells of a table."""

import numpy as np
import pytest
import soundfile
import torch

from animals import OPTIONS, rows, write_csv
from m3g.data import Objects


def test_sounds_are_resampled_mixed_cropped_and_padded(tmp_path):
    time = np.arange(8000) / 8000
    tone = 0.5 * np.sin(2 * np.pi * 440 * time)
    soundfile.write(tmp_path / "a.wav", tone, 8000)
    soundfile.write(tmp_path / "b.flac", np.stack([np.repeat(tone, 2), np.zeros(16000)], 1), 16000)
    content = [{"sound": name, "text": f"number {i} of them"} for i, name in enumerate(["a.wav", "b.flac"] * 4)]
    data = Objects(
        write_csv(tmp_path, content),
        view={"sound": {"rate": 8000, "seconds": 1.5}}, batch_size=2, val=0.0, test=0.0,
    )  # fmt: skip
    a, b = data.arrays("train")[0][0][:2]
    assert a.shape == (12000,)
    torch.testing.assert_close(a[:8000], torch.from_numpy(tone).float(), atol=1e-3, rtol=0)
    assert int(a[8000:].count_nonzero()) == 0
    assert float(b[100:7900].abs().max()) == pytest.approx(0.25, abs=0.01)  # the mean of a tone and silence


def test_a_few_damaged_files_are_missing_and_named(tmp_path, caplog):
    content = rows(tmp_path, 120, missing=False)
    (tmp_path / "3.png").write_bytes(b"no image")
    (tmp_path / "5.wav").write_bytes(b"")
    data = Objects(write_csv(tmp_path, content), val=0.0, test=0.0, **OPTIONS)
    assert "1 of 120 images are damaged and skipped" in caplog.text
    assert "3.png" in caplog.text
    assert "5.wav" in caplog.text
    _, mask, _ = data.arrays("train")
    assert (~mask).nonzero().tolist() == [[0, 3], [1, 5]]
