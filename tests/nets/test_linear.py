"""Linear encoders, and residual encoders, which are linear at the start of training."""

import torch

from m3g.nets import Linear, Projector, Residual, build_net
from m3g.nets.heads import NoProjector


def test_the_residual_encoder_starts_as_its_linear_map():
    encoder, x = Residual(5, width=8, hidden=4, out_features=3).eval(), torch.randn(7, 5)
    mean, directions = torch.randn(5), torch.randn(5, 3)
    encoder.start_at(mean, directions)
    assert torch.allclose(encoder(x), (x - mean) @ directions, atol=1e-5)
    encoder(x).square().sum().backward()
    assert encoder.residual[-1].weight.grad.abs().sum() > 0  # training changes the residual


def test_the_effect_of_a_step_does_not_grow_with_the_number_of_features():
    changes = []
    for d in (10, 1000):
        torch.manual_seed(0)
        encoder, x = Linear(d, out_features=2), torch.randn(200, d)
        optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)
        before = encoder(x)
        before.square().mean().backward()
        optimizer.step()
        changes.append(float((encoder(x) - before).detach().std()))
    assert 0.3 < changes[1] / changes[0] < 3


def test_options_of_the_projector_set_the_sizes_of_a_residual_encoder():
    specs = [{"kind": "residual", "width": 8}, {"kind": "mlp", "width": 8}, {"kind": "linear"}]
    net = build_net([(5,), (6,), (7,)], encoder=specs, projector={"hidden": 16, "out_features": 4}, predictor={})
    assert [type(part) for part in net.projectors] == [NoProjector, Projector, NoProjector]
    assert net.encoders[0].residual[1].out_features == 16
    assert net([torch.randn(3, d) for d in (5, 6, 7)]).shape == (3, 3, 4)
    assert net.predictor.out_features == 4
