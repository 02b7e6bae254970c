"""Pair marginals of scaled tensors, in slabs and as a whole, against sums over all tuples."""

import itertools
import math

import pytest
import torch

from m3g.costs import along, contraction
from m3g.costs.coupling import sum_onto

SIZES = [(3, 4), (3, 2, 4), (2, 3, 2, 4), (2, 3, 2, 2, 3)]


def random_tensor(*shape, seed=0):
    return torch.rand(2, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def scaled(tensor, scalings):
    for l, scaling in enumerate(scalings):
        tensor = tensor * along(scaling, (l,), len(scalings))
    return tensor


@pytest.mark.parametrize("rows", [1, 2, 10])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_pair_marginals_of_slabs_are_those_of_the_whole(sizes, rows):
    tensor, scalings = random_tensor(*sizes), [random_tensor(n, seed=n) for n in sizes]
    expected = scaled(tensor, scalings)
    parts = [slice(i, min(i + rows, sizes[0])) for i in range(0, sizes[0], rows)]
    of_slabs = contraction.pair_marginals_of_slabs([(part, tensor[:, part]) for part in parts], scalings)
    whole = contraction.pair_marginals(tensor, scalings, range(len(sizes)))
    assert sorted(of_slabs) == sorted(whole) == list(itertools.combinations(range(len(sizes)), 2))
    for edge in whole:
        torch.testing.assert_close(whole[edge], sum_onto(expected, edge))
        torch.testing.assert_close(of_slabs[edge], sum_onto(expected, edge))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_additive_tensors_are_sums_of_their_terms(sizes):
    k = len(sizes)
    singles = [random_tensor(n, seed=n) for n in sizes]
    pairs = {(l, m): random_tensor(sizes[l], sizes[m], seed=l) for l, m in itertools.combinations(range(k), 2)}
    terms = [*(((l,), single) for l, single in enumerate(singles)), *pairs.items()]
    expected = sum(along(term, views, k) for views, term in terms)
    torch.testing.assert_close(contraction.additive(singles, pairs), expected)


@pytest.mark.parametrize("threads", [1, 3])
def test_products_with_a_vector_are_the_same_in_parallel(threads, monkeypatch):
    matrix, row, column = torch.rand(1, 6, 5), torch.rand(1, 1, 6), torch.rand(1, 1, 5)
    monkeypatch.setattr(contraction, "PARALLEL", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert contraction._num_parts(matrix) == threads
    torch.testing.assert_close(contraction.row_times(row, matrix), row @ matrix)
    torch.testing.assert_close(contraction.times_row(matrix, column), column @ matrix.mT)


@pytest.mark.parametrize("sizes", [(5, 5, 5, 5), (2, 3, 40), (40, 3, 2), (7, 2), (3, 4, 5, 6, 7)], ids=str)
def test_the_split_minimises_the_tuples_of_both_groups(sizes):
    def count(lead):
        return math.prod(sizes[:lead]) + math.prod(sizes[lead:])

    assert count(contraction.balanced_split(sizes)) == min(count(lead) for lead in range(1, len(sizes)))


def test_parts_cover_every_slab_and_limit_temporaries(monkeypatch):
    monkeypatch.setattr(contraction, "WHOLE_BYTES", 0)
    tensor = random_tensor(7, 3)
    slabs = [(slice(0, 4), tensor[:, :4]), (slice(4, 7), tensor[:, 4:])]
    parts = list(contraction.parts_of(slabs, temporaries=3.0))
    assert [i for rows, _ in parts for i in range(rows.start, rows.stop)] == list(range(7))
    torch.testing.assert_close(torch.cat([part for _, part in parts], 1), tensor)
    assert max(part.shape[1] for _, part in parts) == 1  # three temporary numbers per entry
