"""Gibbs sampling of tuples: its stationary distribution, and tuples of large mass that it finds."""

import pytest
import torch

import m3g
from m3g.solvers.sampled import recomputed_rows
from m3g.solvers.sampled.gibbs_search import POWERS, gibbs_tuples, random_starts, sweep_powers
from m3g.solvers.sampled.log_kernel import log_kernel_of
from solvers.sampled.kernels import EPSILON, draws_of, problem_of

SIZES = (3, 4, 2)


def test_tuples_are_drawn_in_proportion_to_their_mass():
    problem = problem_of(SIZES)
    log_kernel, draws = log_kernel_of(problem, EPSILON), draws_of(0)
    zero = torch.zeros_like(log_kernel.shift)
    starts = draws.tuples(SIZES, 1, 20_000)
    tuples = gibbs_tuples(log_kernel, starts, zero, draws, [1.0] * 6)[0]
    indices = tuples[:, 0] * 8 + tuples[:, 1] * 2 + tuples[:, 2]
    frequencies = torch.bincount(indices, minlength=24) / len(indices)
    shift = sum(
        part.reshape([-1 if a == l else 1 for a in range(3)])
        for l, part in enumerate(log_kernel.shift[0].split(list(SIZES)))
    )
    mass = (shift - problem.dense()[0] / EPSILON).exp().flatten()
    torch.testing.assert_close(frequencies.double(), mass / mass.sum(), atol=0.012, rtol=0)


def test_a_tuple_of_large_mass_attracts_all_chains():
    log_kernel, draws = log_kernel_of(problem_of((6, 6, 6)), EPSILON), draws_of(1)
    log_scaling = torch.zeros_like(log_kernel.shift)
    heavy = [2, 5, 0]
    for l, i in enumerate(heavy):
        log_scaling[0, 6 * l + i] = 30.0
    tuples = gibbs_tuples(log_kernel, draws.tuples((6, 6, 6), 1, 50), log_scaling, draws)
    assert tuples.tolist() == [[heavy] * 50]


@pytest.mark.parametrize("chunk", [1, 2**26])
def test_chunks_do_not_change_the_tuples_or_the_starts(chunk, monkeypatch):
    log_kernel, draws = log_kernel_of(problem_of(SIZES, b=2, cost=m3g.CircularStd()), EPSILON), draws_of(2)
    starts = draws.tuples(SIZES, 2, 30)
    before = starts.clone()
    monkeypatch.setattr(recomputed_rows, "CHUNK_BYTES", chunk)
    tuples = gibbs_tuples(log_kernel, starts, torch.zeros_like(log_kernel.shift), draws_of(3))
    assert torch.equal(starts, before)
    monkeypatch.undo()
    again = gibbs_tuples(log_kernel, starts, torch.zeros_like(log_kernel.shift), draws_of(3))
    assert torch.equal(tuples, again)


def test_powers_rise_to_those_of_the_last_epsilon():
    powers = sweep_powers(3, 2.0)
    assert powers[-len(POWERS) :] == POWERS
    assert list(powers) == sorted(powers)
    assert powers[0] == POWERS[0] / 8


def test_starts_of_a_cost_with_local_maxima_are_selected_by_mass(monkeypatch):
    problem = problem_of((5, 4, 6), b=2, cost=m3g.MultilinearProduct())
    log_kernel = log_kernel_of(problem, EPSILON)
    log_scaling = torch.randn(log_kernel.shift.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tuples = random_starts(log_kernel, log_scaling, 400, draws_of(0))
    assert tuples.shape == (2, 400, 3)

    def mean_log_mass(tuples):
        logits = log_kernel.conditional(0, tuples) + log_scaling[:, None, :5]
        others = log_scaling[:, 5:9].gather(1, tuples[..., 1]) + log_scaling[:, 9:].gather(1, tuples[..., 2])
        return float((logits.logsumexp(2) + log_kernel.rest(0, tuples) + others).mean())

    every = torch.cartesian_prod(torch.arange(1), torch.arange(4), torch.arange(6)).expand(2, -1, -1)
    logits = log_kernel.conditional(0, every) + log_scaling[:, None, :5]
    others = log_scaling[:, 5:9].gather(1, every[..., 1]) + log_scaling[:, 9:].gather(1, every[..., 2])
    logs = logits.logsumexp(2) + log_kernel.rest(0, every) + others
    expected = float((logs.softmax(1) * logs).sum(1).mean())  # the mean over draws in proportion to the mass
    assert mean_log_mass(tuples) == pytest.approx(expected, abs=0.15)
    assert mean_log_mass(draws_of(1).tuples((5, 4, 6), 2, 400)) < expected - 0.5
    monkeypatch.setattr(recomputed_rows, "CHUNK_BYTES", 1)
    assert random_starts(log_kernel, log_scaling, 3, draws_of(0)).shape == (2, 3, 3)
    assert random_starts(log_kernel, log_scaling, 0, draws_of(0)).shape == (2, 0, 3)


def test_starts_of_other_costs_are_uniform():
    log_kernel = log_kernel_of(problem_of((3, 4, 2)), EPSILON)
    tuples = random_starts(log_kernel, torch.zeros_like(log_kernel.shift), 50, draws_of(0))
    assert torch.equal(tuples, draws_of(0).tuples((3, 4, 2), 1, 50))
