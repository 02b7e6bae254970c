"""Random numbers of a solve: independent of the data and of global settings."""

import pytest
import torch

import m3g
from m3g.solvers.sampled.draws import DefaultDraws, seeded_draws
from solvers.noisy import noisy_views
from solvers.sampled.kernels import draws_of


@pytest.mark.parametrize("seed", [0, 3])
def test_the_samples_of_a_seed_do_not_depend_on_data_of_that_seed(seed):
    views = noisy_views(4, 128, d=64, seed=seed)

    def steps(solver_seed):
        solver = m3g.Sampled(form="products", seed=solver_seed)
        return m3g.solve(m3g.CircularVariance()(views), epsilon=0.05, solver=solver).num_steps

    assert steps(seed) <= 1 + max(steps(other) for other in (10, 11))


def test_seeded_draws_differ_from_those_of_torch_with_the_same_seed():
    numbers = seeded_draws(5, torch.device("cpu")).normal(1000, dtype=torch.float64)
    of_torch = torch.randn(4000, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    assert not torch.isin(numbers, of_torch).any()


def test_draws_of_a_seed_do_not_depend_on_the_default_dtype():
    expected = draws_of(0).uniform(8)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        actual = draws_of(0).uniform(8)
        assert DefaultDraws(torch.device("cpu")).uniform(8).dtype == torch.float32
    finally:
        torch.set_default_dtype(before)
    assert actual.dtype == torch.float32
    assert torch.equal(actual, expected)
