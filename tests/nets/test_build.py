"""Networks of separate, shared and frozen encoders."""

import pytest
import torch

from m3g.nets import MLP, build_encoders, build_net


def test_shared_encoders_require_one_shape_and_separate_ones_share_nothing():
    with pytest.raises(ValueError, match="views must have the same shape with shared=True"):
        build_encoders("mlp", view_shapes=[(3,), (4,)], shared=True)
    assert len(build_encoders("mlp", view_shapes=[(3,), (3,)], shared=True)) == 1
    first, second = build_encoders(MLP(3), view_shapes=[(3,), (3,)])
    assert first is not second


def test_encoders_of_views_may_be_separate_shared_or_frozen():
    specs = [{"kind": "mlp", "width": 8}, {"share": 0}, {"kind": "mlp", "width": 4, "dropout": 0.5, "frozen": True}]
    net = build_net([(3,), (3,), (5,)], encoder=specs)
    assert net.encoders[1] is net.encoders[0]
    assert net.projectors[1] is net.projectors[0]
    net.train()
    assert net.encoders[0].training
    assert not net.encoders[2].training
    net([torch.randn(6, 3), torch.randn(6, 3), torch.randn(6, 5)]).sum().backward()
    assert all(p.grad is None for p in net.encoders[2].parameters())
    assert all(p.grad is not None for p in net.encoders[0].parameters())
    again = build_net([(3,), (3,), (5,)], encoder=specs)
    again.load_state_dict(net.state_dict())
    with pytest.raises(ValueError, match="share must be an earlier view of the same shape"):
        build_net([(3,), (4,)], encoder=[{"kind": "mlp"}, {"share": 0}])
    with pytest.raises(ValueError, match="got view 7 for view 1; the views have the shapes"):
        build_net([(3,), (3,)], encoder=[{"kind": "mlp"}, {"share": 7}])
