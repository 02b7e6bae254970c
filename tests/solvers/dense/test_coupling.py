"""The coupling of the dense solver: accessors in any order, and inputs that are not changed."""

import pytest
import torch

import m3g
from m3g.costs import as_cost
from m3g.costs.coupling import TensorCoupling
from m3g.solvers.dense.coupling import KernelCoupling
from m3g.solvers.dense.kernel import Kernel


def test_the_input_is_not_changed():
    cost = torch.rand(4, 4, 4)
    before = cost.clone()
    solution = m3g.solve(cost, epsilon=0.05, solver="dense", differentiable=True)
    solution.coupling()
    assert torch.equal(cost, before)


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "slabs"])
@pytest.mark.parametrize("first", ["rows", "pair", "pull"])
def test_accessors_agree_in_any_order(first, kept, monkeypatch):
    """`rows` replaces a kernel that is in memory by the coupling."""
    monkeypatch.setattr("m3g.solvers.shared.couplings.SLAB_BYTES", 1)
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(2, n, 3, generator=generator, dtype=torch.float64) for n in (4, 3, 5)]
    problem = as_cost("csd")([torch.nn.functional.normalize(view, dim=-1) for view in views])
    kernel = Kernel(problem, 0.5, torch.float64, kept=kept)
    base, scaling = (torch.randn(2, 12, generator=generator, dtype=torch.float64) for _ in range(2))
    kernel.absorb(base)
    exponent = -problem.dense() / 0.5
    for l, part in enumerate(scaling.split([4, 3, 5], 1)):
        exponent = exponent + part.view(2, *[-1 if a == l else 1 for a in range(3)])
    tensor, points = exponent.exp(), torch.randn(2, 12, 3, generator=generator, dtype=torch.float64)
    coupling = KernelCoupling(kernel, scaling)
    calls = {
        "rows": lambda: torch.cat([slab.clone() for _, slab in coupling.rows()], 1),
        "pair": lambda: coupling.pair(1, 2),
        "pull": lambda: coupling.pull(points),
    }
    expected = {"rows": tensor, "pair": tensor.sum(1), "pull": TensorCoupling(tensor).pull(points)}
    for name in sorted(calls, key=lambda name: name != first):
        torch.testing.assert_close(calls[name](), expected[name])
    torch.testing.assert_close(coupling.marginal(0), tensor.sum((2, 3)))
