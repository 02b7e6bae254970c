"""`m3g audit`: the unreliable entries of a run, and the rows to which they may belong."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import m3g
from m3g.training.mismatch.audit import find_partners
from m3g.training.mismatch.entries import Entry
from training.mismatch.test_reliability import noisy_views


@settings(max_examples=8, deadline=None, derandomize=True)
@given(k=st.integers(3, 6), n=st.integers(20, 80), seed=st.integers(0, 100))
def test_partners_are_the_rows_that_the_entries_come_from(k, n, seed):
    views, swapped = noisy_views(k, n, 16, wrong=max(2, n // 20), seed=seed)
    unswapped, _ = noisy_views(k, n, 16, wrong=0, seed=seed)
    names, index = [f"view{l}" for l in range(k)], torch.arange(n) * 3 + 7
    positions = [(l, i) for l, i in swapped.nonzero().tolist() if swapped[:, i].sum() == 1]
    entries = [Entry(int(index[i]), names[l], 0.1, -2.0) for l, i in positions]
    partners = find_partners(entries, views, ~swapped, index, names)
    num_correct = 0
    for (l, i), partner in zip(positions, partners):
        origin = int((unswapped[l] - views[l, i]).norm(dim=-1).argmin())
        assert origin != i
        num_correct += (
            partner is not None and partner.row == int(index[origin]) and partner.similarity > partner.own_similarity
        )
    assert num_correct >= 0.9 * len(positions)
    kept = [Entry(int(index[i]), names[0], 0.9, 2.0) for i in (~swapped.any(0)).nonzero().flatten().tolist()]
    partners_of_reliable = find_partners(kept, views, ~swapped, index, names)
    assert sum(partner is None for partner in partners_of_reliable) >= 0.9 * len(kept)


def test_with_a_cost_partners_are_found_by_its_query():
    signs = torch.randn(2, 20, 16, generator=torch.Generator().manual_seed(0)).sign()
    views = torch.stack([*signs, signs.prod(0)])
    views[2, [3, 7]] = views[2, [7, 3]]
    trusted = torch.ones(3, 20, dtype=torch.bool)
    trusted[2, [3, 7]] = False
    entries = [Entry(3, "c", 0.1, -1.0), Entry(7, "c", 0.1, -1.0), Entry(5, "c", 0.9, 1.0)]
    partners = find_partners(entries, views, trusted, torch.arange(20), ["a", "b", "c"], cost=m3g.MultilinearProduct())
    assert [None if one is None else one.row for one in partners] == [7, 3, None]


def test_a_row_without_other_reliable_entries_is_no_partner():
    first = torch.eye(3)
    views = torch.stack([first, torch.stack([-2 * first[0] - first[1], first[1], first[2]])])
    trusted = torch.tensor([[True, True, False], [False, True, True]])
    (partner,) = find_partners([Entry(0, "b", 0.1, -1.0)], views, trusted, torch.arange(3), ["a", "b"])
    assert partner is not None
    assert partner.row == 1  # its cosine is negative, and row 2 has none
