"""Algorithm 1 in the log domain: its sweeps, its memory, and the evaluation of its error."""

import pytest
import torch

import m3g
import reference
from m3g.solvers.shared import couplings
from m3g.solvers.sinkhorn import log_sums


@pytest.mark.parametrize("sweeps", [1, 3])
@pytest.mark.parametrize("sizes", [(3, 4), (3, 4, 2)], ids=str)
def test_the_last_view_of_a_sweep_has_its_weights(sizes, sweeps):
    cost = torch.rand(sizes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    solution = m3g.solve(cost, epsilon=0.05, tol=1e-12, solver=m3g.Sinkhorn(max_steps=sweeps))
    assert solution.num_steps == sweeps
    potentials = [torch.zeros(n, dtype=torch.float64) for n in sizes]
    for _ in range(sweeps):
        for l in range(len(sizes)):
            exponent = -cost
            for m, f in enumerate(potentials):
                exponent = exponent + f.reshape([-1 if a == m else 1 for a in range(len(sizes))])
            marginal = (exponent / 0.05).exp().sum([a for a in range(len(sizes)) if a != l])
            potentials[l] = potentials[l] - 0.05 * (marginal * sizes[l]).log()
    for computed, expected in zip(solution.potentials, potentials):
        torch.testing.assert_close(computed, expected)
    torch.testing.assert_close(solution.marginal(len(sizes) - 1), torch.full((sizes[-1],), 1 / sizes[-1]).double())


@pytest.mark.parametrize("every", [1, 4])
def test_the_error_is_evaluated_every_few_sweeps(every):
    problem = m3g.CircularVariance()(reference.noisy_views(3, 6))
    solution = m3g.solve(problem, epsilon=0.1, tol=1e-6, solver=m3g.Sinkhorn(check_every=every))
    assert solution.converged
    assert solution.num_steps % every == 0


@pytest.mark.parametrize("slab_bytes", [1, 2**24], ids=["slabs", "whole"])
def test_log_marginals_of_slabs_are_those_of_the_whole(slab_bytes, monkeypatch):
    monkeypatch.setattr(couplings, "SLAB_BYTES", slab_bytes)
    generator = torch.Generator().manual_seed(0)
    cost = torch.rand(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    potentials = [torch.rand(2, n, generator=generator, dtype=torch.float64) for n in (3, 4, 5)]
    total = sum(f.reshape([2] + [-1 if a == l else 1 for a in range(3)]) for l, f in enumerate(potentials))
    tensor = ((total - cost) / 0.1).exp()
    for l, computed in enumerate(log_sums(cost, potentials, 0.1, range(3))):
        torch.testing.assert_close(computed.exp(), tensor.sum([a + 1 for a in range(3) if a != l]))


def test_a_cost_tensor_beyond_the_memory_limit_is_an_error():
    message = "the cost tensor of 4 x 4 x 4 entries must be at most .* GiB, got .* GiB"
    with pytest.raises(ValueError, match=message):
        m3g.solve(torch.rand(4, 4, 4), epsilon=1.0, solver=m3g.Sinkhorn(memory_limit=100))


@pytest.mark.parametrize("field", ["max_steps", "check_every", "fixed_steps", "memory_limit"])
def test_invalid_settings_are_named(field):
    with pytest.raises(ValueError, match=f"{field} must be a whole number of at least 1, got 0"):
        m3g.Sinkhorn(**{field: 0})
