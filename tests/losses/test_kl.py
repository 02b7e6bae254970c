"""The divergence of the true matching from the optimal coupling, and its relation to the gap."""

from __future__ import annotations

import math

import pytest
import torch

import m3g
from m3g import losses

SHAPES = [(2, 6), (3, 5), (4, 4)]


def batch(k, n, d=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(k, n, d, generator=generator, dtype=torch.float64), dim=-1)


def literal(views, epsilon, of):
    """Return the divergence by its formula, from the full coupling of Algorithm 1."""
    k, n, _ = views.shape
    coupling = m3g.solve(m3g.CircularVariance()(views), epsilon=epsilon, tol=1e-11, solver="sinkhorn").coupling()
    if of == "tuples":
        return -math.log(n) - sum(float(coupling[(i,) * k].log()) for i in range(n)) / n
    total = 0.0
    for l in range(k):
        for m in range(l + 1, k):
            pair = coupling.sum([a for a in range(k) if a not in (l, m)]) if k > 2 else coupling
            total += -math.log(n) - sum(float(pair[i, i].log()) for i in range(n)) / n
    return 2 / (k * (k - 1)) * total


@pytest.mark.parametrize(("k", "n"), SHAPES)
@pytest.mark.parametrize("of", ["tuples", "pairs"])
def test_agrees_with_its_formula(k, n, of):
    views = batch(k, n)
    ours = losses.matching_divergence(views, epsilon=0.1, of=of, tol=1e-9)
    assert ours.item() == pytest.approx(literal(views, 0.1, of), rel=1e-6)


@pytest.mark.parametrize(("k", "n"), SHAPES)
@pytest.mark.parametrize("of", ["tuples", "pairs"])
def test_gradient_is_that_of_finite_differences(k, n, of):
    def divergence(x):
        return losses.matching_divergence(x, epsilon=0.2, of=of, tol=1e-12)

    assert torch.autograd.gradcheck(divergence, batch(k, n).requires_grad_(), atol=1e-5)


@pytest.mark.parametrize(("k", "n"), SHAPES)
def test_the_divergence_of_tuples_is_the_gap_over_epsilon_also_by_implicit_differentiation(k, n):
    views = batch(k, n).requires_grad_()
    gap = m3g.matching_gap(views, epsilon=0.1, tol=1e-11)
    (gradient,) = torch.autograd.grad(gap, views)
    # KL(J ‖ P) written with the full coupling, differentiated through the potentials.
    solution = m3g.solve(m3g.CircularVariance()(views), epsilon=0.1, tol=1e-11, differentiable=True)
    index = torch.arange(n)
    divergence = -math.log(n) - solution.coupling()[(index,) * k].log().mean()
    (implicit,) = torch.autograd.grad(divergence, views)
    # `matching_gap` normalises the views and the cost does not, so the gradients are compared along the sphere.
    implicit = implicit - (implicit * views).sum(-1, keepdim=True) * views
    torch.testing.assert_close(divergence, gap / 0.1)
    torch.testing.assert_close(implicit, gradient / 0.1, rtol=1e-5, atol=1e-7)


def test_the_divergence_of_pairs_is_less_than_that_of_tuples():
    views = batch(4, 5)
    pairs, tuples = (losses.matching_divergence(views, of=of, tol=1e-8) for of in ("pairs", "tuples"))
    assert 0 < pairs < tuples
    two = [losses.matching_divergence(views[:2], of=of, tol=1e-8) for of in ("pairs", "tuples")]
    torch.testing.assert_close(*two)


def test_the_teacher_form_is_the_mean_over_mixed_tuples():
    student, teacher = batch(3, 5), batch(3, 5, seed=1)
    loss = losses.build("kl", of="pairs", tol=1e-8)
    mixed = m3g.leave_one_out(student, teacher)
    torch.testing.assert_close(loss(student, teacher=teacher), sum(loss(views) for views in mixed) / 3)


def test_float32_gradient_is_close_to_float64():
    views = batch(3, 32, d=16)
    gradients = []
    for x in (views, views.float()):
        x = x.clone().requires_grad_()
        losses.matching_divergence(x, of="pairs", epsilon=0.02, tol=1e-4).backward()
        gradients.append(x.grad.double())
    assert torch.nn.functional.cosine_similarity(*(g.flatten() for g in gradients), dim=0) > 0.9999


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"of": "triples"}, r"of must be one of 'pairs', 'tuples', got 'triples'"),
        ({"epsilon": 0, "solver": "linear-program"}, r"epsilon must be a positive number for a divergence, got 0"),
        ({"of": "pairs", "solver": "sampled"}, r"solver must be 'auto', 'factored', .* with of='pairs', got Sampled"),
    ],
)
def test_an_invalid_option_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        losses.build("kl", **options)
