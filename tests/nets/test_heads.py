"""Projection and prediction heads."""

import pytest
import torch
from torch.nn.functional import normalize

from m3g.nets import Head, build_net


def test_heads_follow_the_paper():
    head = Head(768, hidden=4096, out_features=256)
    assert [type(part).__name__ for part in head.layers] == ["Linear", "GELU", "Linear", "LayerNorm"]
    assert [tuple(part.shape) for part in head.parameters() if part.ndim == 2] == [(4096, 768), (256, 4096)]
    assert [type(part).__name__ for part in Head(256, hidden=None, out_features=32).layers] == ["Linear"]


def test_heads_start_from_truncated_normal_weights():
    torch.manual_seed(0)
    head = Head(64, hidden=256, out_features=32, weight_std=0.02)
    linear = [layer for layer in head.layers if isinstance(layer, torch.nn.Linear)]
    for layer in linear:
        assert float(layer.weight.detach().abs().max()) <= 0.04
        assert 0.015 < float(layer.weight.detach().std()) < 0.02
        assert not bool(layer.bias.detach().any())
    with pytest.raises(ValueError, match="weight_std"):
        Head(4, weight_std=0.0)


@pytest.mark.parametrize("hidden", [None, 16])
def test_a_common_bias_starts_all_views_in_one_half_space(hidden):
    torch.manual_seed(0)
    shapes = [(5,), (9,), (3,)]
    views = [torch.randn(20, *shape) for shape in shapes]

    def smallest_cosine(**options):
        z = normalize(build_net(shapes, projector={"hidden": hidden, **options})(views), dim=-1)
        return torch.einsum("lnd,mnd->lmn", z, z).min()

    assert smallest_cosine() < 0
    assert smallest_cosine(bias=2.0) > 0.3
    net = build_net([(3,), (4,)], predictor={})
    assert net.predictor.in_features == net.predictor.out_features == 64
