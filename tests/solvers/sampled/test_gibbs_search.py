"""Gibbs sampling of tuples: its stationary distribution, and tuples of large mass that it finds."""

import pytest
import torch

import m3g
from m3g.solvers.sampled import recomputed_rows
from m3g.solvers.sampled.gibbs_search import POWERS, gibbs_tuples, sweep_powers
from m3g.solvers.sampled.log_kernel import log_kernel_of
from solvers.sampled.kernels import EPSILON, draws_of, problem_of

SIZES = (3, 4, 2)


def test_tuples_are_drawn_in_proportion_to_their_mass():
    problem = problem_of(SIZES)
    log_kernel, draws = log_kernel_of(problem, EPSILON), draws_of(0)
    zero = torch.zeros_like(log_kernel.shift)
    starts = draws.tuples(SIZES, 1, 20_000)
    found = gibbs_tuples(log_kernel, starts, zero, draws, [1.0] * 6)[0]
    places = found[:, 0] * 8 + found[:, 1] * 2 + found[:, 2]
    share = torch.bincount(places, minlength=24) / len(places)
    shift = sum(
        part.reshape([-1 if a == l else 1 for a in range(3)])
        for l, part in enumerate(log_kernel.shift[0].split(list(SIZES)))
    )
    mass = (shift - problem.dense()[0] / EPSILON).exp().flatten()
    torch.testing.assert_close(share.double(), mass / mass.sum(), atol=0.012, rtol=0)


def test_a_tuple_of_large_mass_attracts_all_chains():
    log_kernel, draws = log_kernel_of(problem_of((6, 6, 6)), EPSILON), draws_of(1)
    log_scaling = torch.zeros_like(log_kernel.shift)
    heavy = [2, 5, 0]
    for l, i in enumerate(heavy):
        log_scaling[0, 6 * l + i] = 30.0
    found = gibbs_tuples(log_kernel, draws.tuples((6, 6, 6), 1, 50), log_scaling, draws)
    assert found.tolist() == [[heavy] * 50]


@pytest.mark.parametrize("chunk", [1, 2**26])
def test_chunks_change_nothing_and_the_starts_are_kept(chunk, monkeypatch):
    log_kernel, draws = log_kernel_of(problem_of(SIZES, b=2, cost=m3g.CircularStd()), EPSILON), draws_of(2)
    starts = draws.tuples(SIZES, 2, 30)
    before = starts.clone()
    monkeypatch.setattr(recomputed_rows, "CHUNK_BYTES", chunk)
    found = gibbs_tuples(log_kernel, starts, torch.zeros_like(log_kernel.shift), draws_of(3))
    assert torch.equal(starts, before)
    monkeypatch.undo()
    again = gibbs_tuples(log_kernel, starts, torch.zeros_like(log_kernel.shift), draws_of(3))
    assert torch.equal(found, again)


def test_powers_rise_to_those_of_the_last_epsilon():
    powers = sweep_powers(3, 2.0)
    assert powers[-len(POWERS) :] == POWERS
    assert list(powers) == sorted(powers)
    assert powers[0] == POWERS[0] / 8
