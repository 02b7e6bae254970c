"""The encoder of text as bytes."""

import pytest
import torch

from m3g.nets import build_encoder


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_text_ignores_padding_and_accepts_an_empty_text(dtype):
    encoder = build_encoder({"kind": "text", "width": 16, "heads": 2}, input_shape=(24,)).eval()
    text = torch.zeros(3, 24, dtype=dtype)
    text[0, :9] = torch.tensor(list("süßer".encode() + b"??"))
    text[1, :9], text[1, 9:] = text[0, :9], 0
    features = encoder(text)
    assert bool(torch.isfinite(features).all())
    torch.testing.assert_close(features[0], features[1])
    torch.testing.assert_close(encoder(text[:, :12])[0], features[0])  # less padding, the same text
    assert not torch.allclose(features[0], features[2])
