"""The gap where rounding decides its sign, and under torch.vmap."""

import pytest
import torch

import m3g


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("cost", ["cv", "csd", "sqeuclidean", "cosine", "coulomb"])
@pytest.mark.parametrize("solver", ["auto", "sinkhorn", "sampled", m3g.Factored(fixed_steps=3)])
def test_the_gap_of_one_point_is_0(solver, cost, dtype):
    if cost == "csd" and isinstance(solver, m3g.Factored):
        pytest.skip("not a sum over pairs")
    for seed in range(5):
        views = torch.randn(3, 1, 8, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_()
        gap = m3g.matching_gap(views, cost=cost, solver=solver)
        gap.backward()
        assert 0.0 <= gap.item() < 1e-2
        assert float(views.grad.abs().max()) < 1e-2


@pytest.mark.filterwarnings("ignore::m3g.solvers.RangeWarning")
@pytest.mark.parametrize("n", [1, 2, 8])
def test_the_gap_of_identical_views_is_not_negative(n):
    for seed in range(20):
        points = torch.randn(n, 8, generator=torch.Generator().manual_seed(seed))
        for epsilon in (1e-3, 0.05):
            assert m3g.matching_gap(points.expand(3, n, 8), epsilon=epsilon).item() >= 0.0


def test_the_gradient_is_kept_if_the_gap_is_rounded_up_to_0(monkeypatch):
    from m3g.losses import m3g as module

    views = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    (expected,) = torch.autograd.grad(m3g.matching_gap(views), views)
    plain = module.differentiable_value
    monkeypatch.setattr(module, "differentiable_value", lambda solution: plain(solution) + 10.0)
    gap = m3g.matching_gap(views)
    assert gap.item() == 0.0
    torch.testing.assert_close(torch.autograd.grad(gap, views)[0], expected)


@pytest.mark.parametrize("cost", ["cv", "sqeuclidean", "coulomb", "csd"])
@pytest.mark.parametrize("solver", [m3g.Factored(fixed_steps=8), m3g.Sinkhorn(fixed_steps=20)], ids=lambda s: s.name)
def test_vmap_is_supported_with_fixed_steps(solver, cost):
    if cost == "csd" and solver.name == "factored":
        pytest.skip("not a sum over pairs")
    views = torch.randn(4, 3, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def gap(views):
        return m3g.matching_gap(views, cost=cost, solver=solver, epsilon=0.3)

    torch.testing.assert_close(torch.vmap(gap)(views), gap(views))
    leaf = views.clone().requires_grad_()
    (expected,) = torch.autograd.grad(gap(leaf).sum(), leaf)
    torch.testing.assert_close(torch.vmap(torch.func.grad(gap))(views), expected)


@pytest.mark.parametrize(
    "solver", ["auto", "factored", "sinkhorn", "sampled", "linear-program", m3g.Sampled(fixed_steps=4, rank=64)]
)
def test_vmap_of_other_solvers_is_an_error_of_one_line(solver):
    epsilon = 0.0 if solver == "linear-program" else 0.3
    with pytest.raises(ValueError, match=r"torch\.vmap") as raised:
        torch.vmap(lambda views: m3g.matching_gap(views, solver=solver, epsilon=epsilon))(torch.randn(4, 3, 5, 6))
    assert "\n" not in str(raised.value)
