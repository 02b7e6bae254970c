"""Networks of several views: shapes, shared encoders, and errors."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from m3g.nets import MLP, MultiViewNet, Projector, build_net


@settings(deadline=None, max_examples=15)
@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=4), n=st.integers(1, 6), predictor=st.booleans())
def test_embeddings_have_the_expected_shapes(sizes, n, predictor):
    net = build_net(
        [(size,) for size in sizes],
        encoder={"kind": "mlp", "width": 8},
        projector={"hidden": 8, "out_features": 5},
        predictor={} if predictor else None,
    )
    views = [torch.randn(n, size) for size in sizes]
    out = net(views)
    assert out.shape == (len(sizes), n, 5)
    assert [part.shape for part in net.features(views)] == [(n, 8)] * len(sizes)
    one_by_one = torch.stack([net.embed_view(view, l) for l, view in enumerate(views)])
    torch.testing.assert_close(one_by_one, out)


def test_one_shared_encoder_serves_all_views():
    net = build_net([(4,)] * 3, shared=True)
    view = torch.randn(6, 4)
    out = net([view, view, view])
    assert torch.equal(out[0], out[1])
    assert torch.equal(out[0], out[2])
    assert len(net.encoders) == len(net.projectors) == 1


def test_wrong_numbers_of_parts_are_errors():
    with pytest.raises(ValueError, match="one per encoder"):
        MultiViewNet([MLP(3), MLP(3)], [Projector(256)] * 3)
    with pytest.raises(ValueError, match="views must be 2 tensors"):
        MultiViewNet([MLP(3), MLP(3)], Projector(256))([torch.randn(2, 3)] * 3)
    with pytest.raises(ValueError, match="at least one module"):
        MultiViewNet([], Projector(256))
