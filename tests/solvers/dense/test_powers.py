"""Powers by multiplications, and the kernel of the circular standard deviation, which is such a power."""

import pytest
import torch

import m3g
from m3g.solvers.dense import kernel, powers


@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 20.0, 22.5, 50.0, 127.5, 128.0])
def test_powers_by_multiplication_agree_with_pow(power, monkeypatch):
    monkeypatch.setattr(powers, "ENTRIES", 10)
    x = torch.rand(3, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
    assert powers.is_fast(power)
    torch.testing.assert_close(powers.power_(x.clone(), power, 1.1), (1.1 * x) ** power, rtol=1e-12, atol=0)


@pytest.mark.parametrize("power", [0.0, 0.25, 33.3, 128.5, float("inf")])
def test_other_powers_have_no_fast_form(power):
    assert not powers.is_fast(power)


@pytest.mark.parametrize("opposite", [False, True], ids=["all", "clamped"])
@pytest.mark.parametrize("sizes", [(5, 6), (4, 3, 5), (3, 4, 2, 3)], ids=str)
@pytest.mark.parametrize("epsilon", [0.2, 0.4])
def test_a_power_of_the_squared_mean_is_the_exponential_of_the_cost(epsilon, sizes, opposite, monkeypatch):
    """Opposite points have a mean of zero, so that their cost is clamped."""
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in sizes]
    views = [torch.nn.functional.normalize(view, dim=-1) for view in views]
    if opposite and len(sizes) != 3:
        views[1][0] = -views[0][0]
        for view in views[3::2]:
            view[0] = -views[2][0]
    leaves = [view.clone().requires_grad_() for view in views]
    used = []
    monkeypatch.setattr(kernel, "power_", lambda *args: used.append(args[1]) or powers.power_(*args))
    solution = m3g.solve(m3g.CircularStd()(leaves), epsilon=epsilon, tol=1e-9, solver="dense", differentiable=True)
    solution.value.backward()
    assert used == [1 / epsilon]
    monkeypatch.setattr(kernel, "is_fast", lambda power: False)
    others = [view.clone().requires_grad_() for view in views]
    expected = m3g.solve(m3g.CircularStd()(others), epsilon=epsilon, tol=1e-9, solver="dense", differentiable=True)
    expected.value.backward()
    torch.testing.assert_close(solution.value, expected.value, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(solution.coupling(), expected.coupling(), rtol=1e-6, atol=1e-9)
    for leaf, other in zip(leaves, others, strict=True):
        torch.testing.assert_close(leaf.grad, other.grad, rtol=1e-6, atol=1e-8)
