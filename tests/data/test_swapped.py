import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from m3g.data import MultipleFeatures
from m3g.data.tables.swapped import swap_entries


@settings(max_examples=20, deadline=None, derandomize=True)
@given(k=st.integers(2, 5), n=st.integers(5, 60), share=st.floats(0.0, 0.7), seed=st.integers(0, 1000))
def test_entries_trade_places_within_their_view(k, n, share, seed):
    mask = torch.rand(k, n, generator=torch.Generator().manual_seed(seed)) < 0.8
    views = [torch.arange(float(n)).unsqueeze(1).repeat(1, 3) for _ in range(k)]
    shown = swap_entries(views, mask, share=share, seed=seed)
    for view, of, present in zip(views, shown, mask):
        assert torch.equal(view[:, 0].long(), of)
        assert sorted(of.tolist()) == list(range(n))  # nothing is lost
        assert (of[~present] == torch.arange(n)[~present]).all()
    swapped = int((shown != torch.arange(n)).sum())
    assert round(share * int(mask.sum())) - k <= swapped <= round(share * int(mask.sum()))


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
