"""Losses agree with other packages in the special cases that these support."""

from __future__ import annotations

import pytest
import torch
from pytorch_metric_learning import losses as metric_learning
from symile import Symile as SymilePackage

from m3g import losses


@pytest.fixture
def views():
    return torch.nn.functional.normalize(
        torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64), dim=-1
    )


@pytest.mark.parametrize("k", [3, 4])
@pytest.mark.parametrize("negatives", ["n", "n_squared"])
def test_symile_equals_that_of_the_authors_package(k, negatives):
    views = torch.randn(k, 5, 4, generator=torch.Generator().manual_seed(k), dtype=torch.float64)
    torch.manual_seed(3)
    theirs = SymilePackage(negative_sampling=negatives)(list(views), 1 / 0.3)
    torch.manual_seed(3)
    ours = losses.symile(views, temperature=0.3, negatives=negatives, normalize=False)
    assert torch.isclose(ours, theirs)


def test_infonce_equals_that_of_pytorch_metric_learning(views):
    a, b, _ = views
    label = torch.arange(7)
    theirs = metric_learning.NTXentLoss(temperature=0.2)(a, label, ref_emb=b, ref_labels=label.clone())
    assert torch.isclose(losses.infonce(a, b, temperature=0.2), theirs)


def test_polyview_of_two_views_is_nt_xent(views):
    label = torch.arange(7).repeat(2)
    theirs = metric_learning.NTXentLoss(temperature=0.2)(views[:2].reshape(14, 5), label)
    assert torch.isclose(losses.polyview(views[:2], temperature=0.2), theirs)


def test_vicreg_of_two_views_equals_that_of_pytorch_metric_learning():
    a, b = torch.randn(2, 9, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    theirs = metric_learning.VICRegLoss(invariance_lambda=3, variance_mu=5, covariance_v=7)(a, ref_emb=b)
    assert torch.isclose(losses.vicreg([a, b], invariance=3, variance=5, covariance=7), theirs)
