"""Exchanges between processes that share a solve: vectors and pair marginals of slabs add up to those of the whole."""

import itertools

import pytest
import torch

from m3g.solvers.shared.newton import hessian
from m3g.solvers.shared.processes import CARRIED, Shard, SharedSolveError, agreed, read, read_two
from solvers.group import in_group

SIZES = (5, 4, 3)


def pair_marginals(tensor):
    return {
        (l, m): tensor.sum([a + 1 for a in range(3) if a not in (l, m)]) for l, m in itertools.combinations(range(3), 2)
    }


def marginals(tensor):
    return torch.cat([tensor.sum([a + 1 for a in range(3) if a != l]) for l in range(3)], 1)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("lead", [0, 1, 2])
def test_slabs_add_up_to_the_whole(lead, count):
    coupling = torch.rand(2, *SIZES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    vector = torch.randn(2, sum(SIZES), dtype=torch.float64)
    expected = hessian(pair_marginals(coupling), marginals(coupling), SIZES)(vector)

    def exchange(processes):
        shard = Shard(processes, lead, SIZES)
        slab = coupling.movedim(lead + 1, 0)[shard.rows].movedim(0, lead + 1)
        assert list(slab.shape[1:]) == shard.own_sizes
        local = pair_marginals(slab)
        total, pairs = shard.summed_with_pairs(marginals(slab), local)
        return {
            "marginals": shard.summed(marginals(slab)),
            "with pairs": total,
            **{f"pair {edge}": pair for edge, pair in pairs.items()},
            "product": shard.hessian(local, marginals(coupling))(vector),
            "joined": shard.joined(shard.own(vector)),
        }

    for results in in_group(count, exchange):
        torch.testing.assert_close(results["marginals"], marginals(coupling))
        torch.testing.assert_close(results["with pairs"], marginals(coupling))
        for edge, pair in pair_marginals(coupling).items():
            torch.testing.assert_close(results[f"pair {edge}"], pair)
        torch.testing.assert_close(results["product"], expected)
        torch.testing.assert_close(results["joined"], vector)


def test_rows_of_all_processes_partition_the_points():
    parts = in_group(3, lambda processes: list(range(7))[processes.rows(7)])
    assert sorted(itertools.chain(*parts)) == list(range(7))


def test_numbers_are_those_of_rank_0():
    results = in_group(2, lambda processes: processes.from_rank_0([10.0 + processes.rank, 20.0 + processes.rank]))
    assert results == [[10.0, 20.0], [10.0, 20.0]]


def test_one_process_reads_its_own_numbers():
    assert read(torch.tensor([1.0, 3.0])) == 3.0
    assert read_two(torch.tensor([1.0, 2.0]), torch.tensor([5.0, 4.0])) == (2.0, 5.0)
    assert agreed([1.0] * CARRIED) == [1.0] * CARRIED


def test_if_one_process_fails_all_raise():
    def solve(processes):
        try:
            with processes.sharing():
                if processes.rank == 1:
                    raise FloatingPointError("out of range")
                processes.reduced(torch.ones(2))
        except (FloatingPointError, SharedSolveError) as error:
            return type(error).__name__, str(error)

    first, second = in_group(2, solve)
    assert first == ("SharedSolveError", "1 of 2 processes failed in a solve that they share.")
    assert second == ("FloatingPointError", "out of range")
