"""Dropped and swapped entries: their choice, their number, and the entries that remain."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from m3g.data import Arrays, MultipleFeatures
from m3g.data.entries import drop_entries, hashed_draws, seeded_draws, swap_entries


@settings(max_examples=20, deadline=None, derandomize=True)
@given(k=st.integers(2, 5), n=st.integers(5, 60), fraction=st.floats(0.0, 0.7), seed=st.integers(0, 1000))
def test_entries_are_swapped_within_their_view(k, n, fraction, seed):
    mask = torch.rand(k, n, generator=torch.Generator().manual_seed(seed)) < 0.8
    views = [torch.arange(float(n)).unsqueeze(1).repeat(1, 3) for _ in range(k)]
    sources = swap_entries(views, mask, fraction=fraction, seed=seed)
    for view, source, present in zip(views, sources, mask):
        assert torch.equal(view[:, 0].long(), source)
        assert sorted(source.tolist()) == list(range(n))  # nothing is lost
        assert (source[~present] == torch.arange(n)[~present]).all()
    swapped = int((sources != torch.arange(n)).sum())
    assert round(fraction * int(mask.sum())) - k <= swapped <= round(fraction * int(mask.sum()))


def test_only_training_rows_are_swapped_and_by_the_seed():
    clean = MultipleFeatures(views=["fourier", "zernike"])
    data, again, other = (MultipleFeatures(views=["fourier", "zernike"], swapped=0.1, seed=seed) for seed in (0, 0, 1))
    assert clean.swapped_from is None
    for split in ("val", "test"):
        for a, b in zip(clean.arrays(split)[0], data.arrays(split)[0]):
            assert torch.equal(a, b)
    n = clean.num_rows("train")
    assert int((data.swapped_from != torch.arange(n)).sum()) == round(0.1 * 2 * n)
    assert torch.equal(data.swapped_from, again.swapped_from)
    assert not torch.equal(data.swapped_from, other.swapped_from)
    for l, (a, b) in enumerate(zip(clean.arrays("train")[0], data.arrays("train")[0])):
        assert torch.equal(a[data.swapped_from[l]], b)
    with pytest.raises(ValueError, match=r"swapped must be a number from 0"):
        MultipleFeatures(swapped=1.5)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    k=st.integers(1, 6), n=st.integers(1, 40), fraction=st.floats(0, 1), keep=st.integers(1, 3), exact=st.booleans(),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_dropped_entries_are_those_of_the_smallest_draws(k, n, fraction, keep, exact, seed):
    random = torch.Generator().manual_seed(seed)
    present = torch.rand(k, n, generator=random) < 0.6
    draws, before = torch.rand(k, n, generator=random), present.clone()
    remaining = drop_entries(present, draws, fraction=fraction, keep=keep, exact=exact)
    assert torch.equal(present, before)
    assert not (remaining & ~present).any()
    assert (remaining.sum(0) >= present.sum(0).clamp(max=keep)).all()
    for i in range(n):  # within a row, kept entries have larger draws than dropped ones
        dropped, kept = draws[present[:, i] & ~remaining[:, i], i], draws[remaining[:, i], i]
        assert len(dropped) == 0 or len(kept) == 0 or dropped.max() <= kept.min()
    removable = int((present.sum(0) - keep).clamp(min=0).sum())
    if exact:
        assert int((present & ~remaining).sum()) == min(round(fraction * int(present.sum())), removable)
    else:
        literal = sum(
            int(min((draws[present[:, i], i] < fraction).sum(), max(int(present[:, i].sum()) - keep, 0)))
            for i in range(n)
        )
        assert int((present & ~remaining).sum()) == literal


@pytest.mark.parametrize("fraction", [0.0, 0.2, 0.5])
def test_each_view_loses_its_fraction(fraction):
    draws = hashed_draws(8, torch.arange(20_000), key=(1, 2))
    remaining = drop_entries(None, draws, fraction=fraction, keep=2)
    assert remaining.float().mean(1) == pytest.approx(torch.full((8,), 1 - fraction), abs=0.02)


def test_hashed_draws_depend_on_seed_step_row_and_view_alone():
    index = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    whole = hashed_draws(5, index, key=(0, 9))
    for part in (slice(0, 300, 2), slice(1, 300, 2)):  # the rows of two processes
        assert torch.equal(hashed_draws(5, index[part], key=(0, 9)), whole[:, part])
    assert not torch.equal(hashed_draws(5, index, key=(0, 10)), whole)
    assert not torch.equal(hashed_draws(5, index, key=(1, 9)), whole)
    assert len(whole.unique()) == whole.numel()


def test_seeded_draws_are_fixed():
    assert torch.equal(seeded_draws(3, 4, seed=2), seeded_draws(3, 4, seed=2))
    assert not torch.equal(seeded_draws(3, 4, seed=2), seeded_draws(3, 4, seed=3))


def test_only_training_rows_lose_entries(tmp_path):
    paths = [tmp_path / f"{name}.npy" for name in "ab"]
    for width, path in enumerate(paths, start=3):
        np.save(path, np.random.default_rng(width).normal(size=(60, width)))
    complete, data = (Arrays(paths, absent=share) for share in (0.0, 0.3))
    n = data.num_rows("train")
    mask = data.arrays("train")[1]
    assert int(mask.sum()) == 2 * n - round(0.3 * 2 * n)
    for view, other, present in zip(data.arrays("train")[0], complete.arrays("train")[0], mask):
        assert (view[~present] == 0).all()
        assert torch.equal(view[present], other[present])
    assert data.arrays("test")[1] is None
