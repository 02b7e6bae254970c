"""k small encoders as one network."""

import pytest
import torch

from m3g.experiments.runner.stacked import StackedNet
from m3g.nets import build_net


def nets(**options):
    torch.manual_seed(0)
    encoder = {"kind": "mlp", "width": 16, **options}
    return build_net([(5,), (9,), (2, 3)], encoder=encoder, projector={"hidden": None, "out_features": 4})


def test_values_and_gradients_are_those_of_the_plain_network():
    plain, views = nets(), [torch.randn(7, 5), torch.randn(7, 9), torch.randn(7, 2, 3)]
    stacked = StackedNet(plain)
    torch.testing.assert_close(stacked(views), plain(views))
    for net in (plain, stacked):
        net(views).square().sum().backward()
    first = [next(encoder.layers.parameters()).grad for encoder in plain.encoders]
    for own, all_views in zip(first, stacked.weights[0].grad):
        width = own.shape[1]
        torch.testing.assert_close(all_views[:width], own.T)
        assert (all_views[width:] == 0).all()  # padding is not trained


def test_other_networks_are_rejected():
    with pytest.raises(ValueError, match="no dropout"):
        StackedNet(nets(dropout=0.1))
    convolutional = build_net([(3, 8, 8)] * 2, encoder={"kind": "conv"}, projector={"hidden": None})
    with pytest.raises(ValueError, match="MLP encoders and linear heads"):
        StackedNet(convolutional)
