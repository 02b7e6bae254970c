"""The encoder of sounds."""

import torch

from m3g.nets import build_encoder


def test_spectrogram_separates_pitches_and_accepts_short_sounds():
    time = torch.arange(4000) / 8000
    low, high = (torch.sin(2 * torch.pi * pitch * time) for pitch in (200, 2000))
    encoder = build_encoder({"kind": "spectrogram", "rate": 8000, "channels": [8]}, input_shape=(4000,)).eval()
    features = encoder(torch.stack([low, low, high, torch.zeros(4000)]))
    torch.testing.assert_close(features[0], features[1])
    assert not torch.allclose(features[0], features[2], atol=0.1)
    assert bool(torch.isfinite(encoder(torch.zeros(2, 10))).all())
