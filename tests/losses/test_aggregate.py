"""Pair losses extended to k views: any pair loss, and the student–teacher forms."""

from __future__ import annotations

from functools import partial
from itertools import permutations

import pytest
import torch

from losses import literal
from m3g import losses


@pytest.fixture
def views():
    return torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def teacher():
    return torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


PRESENT = torch.tensor([[1, 1, 1, 0, 1], [1, 1, 1, 1, 0], [1, 1, 0, 1, 0]]).bool()
PAIR_LOSSES = {
    "infonce": (losses.infonce, partial(literal.infonce, t=0.1)),
    "byol": (losses.byol, literal.byol),
    "custom": (lambda a, b: (a - 2 * b).abs().sum(), lambda a, b: float((a - 2 * b).abs().sum())),
}


@pytest.mark.parametrize("mask", [None, PRESENT], ids=["present", "masked"])
@pytest.mark.parametrize("pair", PAIR_LOSSES)
def test_any_pair_loss_accepts_a_teacher(pair, mask, views, teacher):
    fast, slow = PAIR_LOSSES[pair]
    z, t = unit(views), unit(teacher)
    present = torch.ones(3, 5, dtype=torch.bool) if mask is None else mask
    ordered = list(permutations(range(3), 2))
    assert losses.pairwise(views, fast, mask=mask, teacher=teacher, min_points=2).item() == pytest.approx(
        literal.pairwise(z, present, slow, pairs=ordered, target=t, min_points=2)
    )
    assert losses.average_of_rest(views, fast, mask=mask, teacher=teacher, min_points=2).item() == pytest.approx(
        literal.average_of_rest(z, present, slow, target=t, min_points=2)
    )


@pytest.mark.parametrize("aggregate", [losses.Pairwise, losses.AverageOfRest])
def test_modules_equal_their_functions(aggregate, views, teacher):
    function = losses.pairwise if aggregate is losses.Pairwise else losses.average_of_rest
    expected = function(views, losses.byol, mask=PRESENT, teacher=teacher)
    assert torch.equal(aggregate(losses.byol)(views, mask=PRESENT, teacher=teacher), expected)


def test_symmetric_uses_each_pair_in_both_directions(views):
    z = unit(views)
    forward = losses.pairwise(views, losses.infonce)
    backward = losses.pairwise(views, lambda a, b: losses.infonce(b, a))
    assert not torch.isclose(forward, backward)
    assert torch.isclose(losses.pairwise(z, losses.infonce, symmetric=True), (forward + backward) / 2)


def test_the_first_views_are_compared_with_all(views):
    z = unit(views)
    pairs = [(0, 1), (0, 2), (1, 0), (1, 2)]
    expected = sum(losses.infonce(z[l], z[m]) for l, m in pairs) / len(pairs)
    assert torch.isclose(losses.pairwise(views, losses.infonce, first=2), expected)


def test_parameters_of_a_pair_loss_are_trained(views):
    loss = losses.Pairwise(losses.InfoNCE(learn_temperature=True), min_points=2)
    loss(views).backward()
    (parameter,) = loss.parameters()
    assert parameter.grad.isfinite()
    assert parameter.grad != 0


def test_views_that_cancel_out_give_a_finite_gradient():
    views = torch.tensor([[[1.0, 0.0]] * 2, [[0.0, 1.0]] * 2, [[0.0, -1.0]] * 2], requires_grad=True)
    losses.average_of_rest(views, losses.byol).backward()
    assert views.grad.isfinite().all()


def test_pair_losses_do_not_normalise():
    a, b = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    assert not torch.isclose(losses.infonce(a, b), losses.infonce(2 * a, b))
    with pytest.raises(ValueError, match="views must have at least 2 points per view"):
        losses.infonce(a[:1], b[:1])


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("teacher", [False, True])
def test_infonce_of_all_pairs_at_once_is_that_of_each(symmetric, teacher):
    random = torch.Generator().manual_seed(0)
    views, other = torch.randn(2, 4, 7, 5, generator=random, dtype=torch.float64)
    inputs = {"teacher": other} if teacher else {}
    at_once = losses.InfoNCE(temperature=0.2)

    def one_by_one(a, b):
        return losses.infonce(a, b, temperature=0.2)

    for aggregate in (losses.pairwise, losses.average_of_rest):
        values = [aggregate(views, pair, symmetric=symmetric, **inputs) for pair in (at_once, one_by_one)]
        assert torch.allclose(*values)
    first = [losses.pairwise(views, pair, first=2, **inputs) for pair in (at_once, one_by_one)]
    assert torch.allclose(*first)
