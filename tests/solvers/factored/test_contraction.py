"""Contraction by matrix products, in slabs and as a whole."""

import pytest
import torch

import m3g
import reference


@pytest.mark.parametrize("slab", [1, 3])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_slabs_do_not_change_the_solution(slab, kept, batch, monkeypatch):
    from m3g.solvers.factored import contraction

    for k in (3, 4, 5, 6):
        views = torch.stack([reference.noisy_views(k, 4, seed=seed) for seed in range(batch)])
        problem = m3g.CircularVariance()(views)
        whole = m3g.solve(problem, epsilon=0.05, tol=1e-9)
        with monkeypatch.context() as patch:
            patch.setattr(contraction, "SLAB_BYTES", slab * batch * 4 ** (k - 2) * 8)
            patch.setattr(contraction, "STORED_BYTES", 2**20 if kept else 0)
            parts = m3g.solve(problem, epsilon=0.05, tol=1e-9)
        torch.testing.assert_close(parts.coupling(), whole.coupling())
        torch.testing.assert_close(parts.pair_marginal(1, 2), whole.pair_marginal(1, 2))
