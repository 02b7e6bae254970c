"""Linear CCA of k views, also of the embeddings of deep CCA."""

import pytest
import torch

from m3g import losses
from m3g.evaluation import CanonicalViews
from m3g.evaluation.canonical import canonical


def test_canonical_directions_correlate_shared_features():
    random = torch.Generator().manual_seed(0)
    shared = torch.randn(400, 2, generator=random)
    parts = []
    for width in (5, 7, 4):
        noise = torch.randn(400, width - 2, generator=random)
        mixed = torch.cat([shared, 3 * noise], dim=1) @ torch.randn(width, width, generator=random)
        parts.append(mixed - mixed.mean(0))
    directions = canonical(parts, size=2, ridge=1e-6).directions
    first = torch.stack([(part @ w)[:, 0] for part, w in zip(parts, directions)])
    assert float(torch.corrcoef(first).abs().min()) > 0.99


def views_up_to_linear_maps():
    random = torch.Generator().manual_seed(0)
    x = torch.randn(3, 100, 4, generator=random, dtype=torch.float64)
    x = x[0] + 0.1 * x
    return x, [view @ torch.randn(4, 4, generator=random, dtype=torch.float64) for view in x]


def test_linear_cca_inverts_linear_maps_to_which_deep_cca_is_invariant():
    x, mixed = views_up_to_linear_maps()
    options = {"ridge": 1e-9, "normalize": False}
    assert losses.mcca(mixed, **options).item() == pytest.approx(losses.mcca(x, **options).item(), abs=1e-6)
    aligned = CanonicalViews(mixed, ridge=1e-9)(mixed)
    assert torch.cosine_similarity(mixed[0], mixed[1]).abs().median() < 0.8
    assert torch.cosine_similarity(aligned[0], aligned[1]).median() > 0.95


def test_missing_entries_are_ignored():
    _, mixed = views_up_to_linear_maps()
    mask = torch.ones(3, 100, dtype=torch.bool)
    mask[1, :30] = False
    complete = [view[30:] for view in mixed]
    damaged = [mixed[0], torch.where(mask[1].unsqueeze(-1), mixed[1], torch.nan), mixed[2]]
    for a, b in zip(CanonicalViews(damaged, mask)(complete), CanonicalViews(complete)(complete)):
        assert torch.allclose(a.abs(), b.abs())
    with pytest.raises(ValueError, match="views must have at least 2 rows with all views, got 1"):
        CanonicalViews(mixed, torch.arange(100).expand(3, 100) < 1)
