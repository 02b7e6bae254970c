"""Encoders of vectors and signals."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from m3g.nets import EEGEncoder, build_encoder


@settings(deadline=None, max_examples=20)
@given(shape=st.lists(st.integers(1, 6), min_size=1, max_size=3), n=st.integers(1, 5), depth=st.integers(1, 3))
def test_mlp_maps_any_sample_shape_to_its_width(shape, n, depth):
    encoder = build_encoder({"kind": "mlp", "width": 12, "depth": depth}, input_shape=shape)
    assert encoder(torch.randn(n, *shape)).shape == (n, encoder.out_features) == (n, 12)
    assert encoder.in_features == math.prod(shape)


def test_the_eeg_stack_matches_the_paper():
    encoder = EEGEncoder()
    convolutions = [part for part in encoder.maps if isinstance(part, nn.Conv1d)]
    assert [part.kernel_size[0] for part in convolutions] == [3, 2, 2, 2, 2, 2, 1]
    assert [part.out_channels for part in convolutions] == [256] * 5 + [64, 64]
    assert [part.num_groups for part in encoder.maps if isinstance(part, nn.GroupNorm)] == [128] * 5 + [32]
    assert [part.p for part in encoder.maps if isinstance(part, nn.Dropout)] == [0.1] * 6
    assert encoder.maps(torch.randn(1, 1, 3000)).shape == (1, 64, 33)
    # A channel given as (n, time) is the same as (n, 1, time).
    encoder.eval()
    signal = torch.randn(2, 1, 300)
    torch.testing.assert_close(encoder(signal), encoder(signal[:, 0]))
