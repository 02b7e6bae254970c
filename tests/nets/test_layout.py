"""Layouts of images in arrays."""

import torch

from m3g.nets import build_encoder


def test_images_may_have_their_channels_first_last_or_none():
    image = torch.rand(2, 3, 16, 16)
    spec = {"kind": "conv", "channels": [8]}
    torch.manual_seed(0)
    first = build_encoder(spec, input_shape=(3, 16, 16))
    torch.manual_seed(0)
    last = build_encoder(spec, input_shape=(16, 16, 3))
    torch.testing.assert_close(last(image.movedim(1, -1)), first(image))
    assert build_encoder(spec, input_shape=(16, 16))(image[:, 0]).shape == (2, 8)
    assert build_encoder({"kind": "vit", "width": 12, "depth": 1, "patch": 8}, input_shape=(16, 16))(
        image[:, 0]
    ).shape == (2, 12)
