"""Ground costs where rounding, zero vectors and extreme scales matter."""

import pytest
import torch

import m3g
from m3g.costs import grounds


def literal_coulomb(x, y):
    squares = (x.double().unsqueeze(-2) - y.double().unsqueeze(-3)).square().sum(-1)
    return squares.clamp(min=1e-6).rsqrt()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(6, 3), (2, 5, 4)])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e6, 1e8])
def test_coulomb_is_accurate_for_points_that_nearly_coincide(scale, shape, dtype):
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)
    y = x.clone()
    y[..., 0, :] += torch.tensor(1e-3 * scale, dtype=dtype)
    y[..., 1, :] = x[..., 2, :]
    torch.testing.assert_close(grounds.coulomb(x, y).double(), literal_coulomb(x, y), rtol=1e-6, atol=0)
    if dtype == torch.float64:
        torch.testing.assert_close(grounds.coulomb(x, y), literal_coulomb(x, y), rtol=1e-10, atol=0)


def test_coulomb_of_coincident_points_is_the_clamped_cost():
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).double() * 1e6
    torch.testing.assert_close(grounds.coulomb(x, x).diagonal(), torch.full((6,), 1e3, dtype=torch.float64))


@pytest.mark.parametrize("chunk", [1, 7])
@pytest.mark.parametrize("many", [0.0, 1.0])
def test_coulomb_does_not_depend_on_the_size_of_chunks(chunk, many, monkeypatch):
    monkeypatch.setattr(grounds, "CHUNK_SIZE", chunk)
    monkeypatch.setattr(grounds, "MANY_FRACTION", many)
    x = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0)).double() * 1e6
    y = torch.cat([x[:, 3:], x[:, :3] + 1.0], 1)
    torch.testing.assert_close(grounds.coulomb(x, y), literal_coulomb(x, y), rtol=1e-10, atol=0)


def test_coulomb_supports_compiled_graphs_and_vmap():
    x = torch.randn(3, 6, 3, generator=torch.Generator().manual_seed(0)).double() * 1e6
    expected = literal_coulomb(x, x)
    torch.testing.assert_close(torch.vmap(grounds.coulomb)(x, x), expected, rtol=1e-10, atol=0)
    compiled = torch.compile(grounds.coulomb, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, x), expected, rtol=1e-10, atol=0)


def test_derivatives_of_coulomb_are_correct(monkeypatch):
    monkeypatch.setattr(grounds, "CLOSE_RATIO", 0.1)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 2, generator=generator, dtype=torch.float64)
    y = torch.cat([x[:1] + 0.05, torch.randn(2, 2, generator=generator, dtype=torch.float64)])
    inputs = (x.requires_grad_(), y.requires_grad_())
    assert torch.autograd.gradcheck(grounds.coulomb, inputs, rtol=1e-4)
    assert torch.autograd.gradgradcheck(grounds.coulomb, inputs, rtol=1e-3, atol=1e-3)
    (gradient,) = torch.autograd.grad(grounds.coulomb(x * 1e6, x * 1e6).sum(), x)
    assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_zero_vector_has_cosine_0_and_no_gradient(dtype):
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=dtype, requires_grad=True)
    y = torch.tensor([[0.0, 2.0], [0.0, 0.0]], dtype=dtype, requires_grad=True)
    cost = grounds.cosine(x, y)
    torch.testing.assert_close(cost, torch.tensor([[1.0, 1.0], [0.2, 1.0]], dtype=dtype), rtol=1e-2, atol=1e-2)
    first = torch.autograd.grad(cost.sum(), (x, y), create_graph=True)
    second = torch.autograd.grad(sum(part.square().sum() for part in first), (x, y))
    for derivatives in (first, second):
        assert all(bool(torch.isfinite(part).all()) for part in derivatives)
        assert derivatives[0][0].tolist() == [0.0, 0.0]
        assert derivatives[1][1].tolist() == [0.0, 0.0]
        assert bool((derivatives[0][1] != 0).any())


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e8, 1e30])
def test_cosine_does_not_depend_on_the_scale(scale):
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(grounds.cosine(x * scale, x * scale), grounds.cosine(x, x))


def test_a_zero_vector_among_views_has_zero_gradient():
    views = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    views[1, 2] = 0
    views.requires_grad_()
    m3g.matching_gap(views, cost="cosine", epsilon=0.5, normalize=False).backward()
    assert float(views.grad.abs().max()) < 10
    assert bool((views.grad[1, 2] == 0).all())
