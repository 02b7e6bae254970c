"""Derivatives of the value, first and second, in backward and forward mode, against finite differences."""

from __future__ import annotations

import pytest
import torch

import m3g
import reference
from m3g.costs import NAMED
from m3g.losses.missing import imputed

EPSILON = {"cv-algorithm2": 1.0, "sqeuclidean": 1.0, "coulomb": 2.0, "csd": 0.5}
GRAPHS = {
    "chain": m3g.PairwiseCost("sqeuclidean", weights={(0, 1): 1.0, (1, 2): 0.5}),
    "one view alone": m3g.PairwiseCost("sqeuclidean", weights={(1, 2): 1.0}),
    "a ground cost for each pair": m3g.PairwiseCost({(0, 1): "cosine", (0, 2): "coulomb", (1, 2): "sqeuclidean"}),
}


def product(x, y, z):
    return (x * y * z).sum(-1).exp()


COSTS = {**{name: name for name in NAMED}, **GRAPHS, "function": product}


def check(function, *inputs, forward=True):
    """First and second derivatives in both modes."""
    inputs = tuple(each.clone().requires_grad_() for each in inputs)
    assert torch.autograd.gradcheck(function, inputs, check_forward_ad=forward, atol=1e-6, rtol=1e-4)
    assert torch.autograd.gradgradcheck(function, inputs, check_fwd_over_rev=forward, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("cost", COSTS)
def test_derivatives_of_every_cost_are_correct(cost, normalize):
    views = reference.noisy_views(3, 2, 2, seed=3) * (1.0 if normalize else 1.1)
    options = {"cost": COSTS[cost], "epsilon": EPSILON.get(cost, 0.4), "tol": 1e-10, "normalize": normalize}
    check(lambda x: m3g.matching_gap(x, **options), views)


MASK = torch.tensor([[True, False, True], [True, True, True], [False, True, True]])


@pytest.mark.parametrize("cost", ["coulomb", m3g.PairwiseCost("cosine", neutral=1.0)], ids=str)
def test_derivatives_with_a_mask_and_a_neutral_value_are_correct(cost):
    views = reference.noisy_views(3, 3, 2, seed=1)
    options = {"cost": cost, "epsilon": EPSILON.get(str(cost), 0.4), "tol": 1e-10, "mask": MASK}
    check(lambda x: m3g.matching_gap(x, **options), views)


@pytest.mark.parametrize("cost", ["cv", "csd", "cosine", "product"])
def test_derivatives_with_a_mask_are_those_of_the_imputed_views(cost):
    """First and second derivatives are those of the gap of the imputed views, whose means are constants."""
    views = reference.noisy_views(3, 3, 2, seed=1)
    direction = torch.randn(views.shape, generator=torch.Generator().manual_seed(0), dtype=views.dtype)
    options = {"cost": cost, "epsilon": EPSILON.get(cost, 0.4), "tol": 1e-10}
    derivatives = []
    for points, mask in ((views, MASK), (imputed(torch.where(MASK.unsqueeze(-1), views, 0.0), MASK), None)):
        leaf = points.clone().requires_grad_()
        (first,) = torch.autograd.grad(m3g.matching_gap(leaf, mask=mask, **options), leaf, create_graph=True)
        masked_direction = direction * MASK.unsqueeze(-1)
        (second,) = torch.autograd.grad((first * masked_direction).sum(), leaf)
        derivatives.append((first.detach()[MASK], second[MASK]))
    for ours, expected in zip(*derivatives):
        torch.testing.assert_close(ours, expected, atol=1e-6, rtol=1e-5)


def test_derivatives_with_a_teacher_and_of_a_batch_are_correct():
    student, teacher = reference.noisy_views(6, 3, 2).reshape(2, 3, 3, 2)
    loss = m3g.M3GLoss(epsilon=0.2, tol=1e-10)
    check(lambda x: loss(x, teacher=teacher), student)
    check(lambda x: m3g.matching_gap(x, epsilon=0.2, tol=1e-10), torch.stack([student, teacher]))


@pytest.mark.parametrize("solver", ["sinkhorn", "factored", "dense"])
@pytest.mark.parametrize("sizes", [(2, 3), (3, 2, 2), (2, 1, 3, 2)])
def test_derivatives_with_different_sizes_and_weights_are_correct(solver, sizes):
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in sizes]
    weights = [torch.rand(n, generator=generator, dtype=torch.float64) + 0.1 for n in sizes]
    weights = [weight / weight.sum() for weight in weights]

    def value(*parts):
        problem = m3g.CircularVariance()(list(parts))
        options = {"tol": 1e-11, "weights": weights, "solver": solver, "differentiable": True}
        return m3g.solve(problem, epsilon=0.5, **options).value

    check(value, *views)


def test_derivatives_of_a_dense_tensor_are_correct():
    cost = torch.rand(2, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    check(lambda c: m3g.solve(c, epsilon=0.3, tol=1e-11, differentiable=True).value, cost)


@pytest.mark.parametrize("cost", ["cv", "csd", "product", "chain", "function"])
def test_torch_func_is_supported(cost):
    """grad, jvp, jacrev, and second derivatives by every composition of the two modes."""
    views = reference.noisy_views(3, 3, 2)

    def gap(x):
        return m3g.matching_gap(x, cost=COSTS[cost], epsilon=0.5, tol=1e-10)

    leaf = views.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(gap(leaf), leaf)
    direction = torch.randn(views.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(torch.func.grad(gap)(views), gradient)
    torch.testing.assert_close(torch.func.jacrev(gap)(views), gradient)
    torch.testing.assert_close(torch.func.jvp(gap, (views,), (direction,))[1], (gradient * direction).sum())
    expected = torch.autograd.functional.vhp(gap, views, direction)[1]
    by_forward = torch.func.jvp(torch.func.grad(gap), (views,), (direction,))[1]
    by_backward = torch.func.grad(lambda x: torch.func.jvp(gap, (x,), (direction,))[1])(views)
    twice_backward = torch.func.vjp(torch.func.grad(gap), views)[1](direction)[0]
    for hessian_product in (by_forward, by_backward, twice_backward):
        torch.testing.assert_close(hessian_product, expected, atol=1e-8, rtol=1e-6)
    if cost in ("cv", "csd", "product"):
        hessian = torch.func.hessian(gap)(views)
        torch.testing.assert_close((hessian * direction).sum((-3, -2, -1)), expected, atol=1e-8, rtol=1e-6)


def test_a_gradient_penalty_in_float32_agrees_with_float64():
    gradients = []
    for dtype in (torch.float32, torch.float64):
        views = reference.noisy_views(4, 8, 6, dtype=dtype).requires_grad_()
        (gradient,) = torch.autograd.grad(m3g.matching_gap(views, tol=1e-5), views, create_graph=True)
        gradients.append(torch.autograd.grad(gradient.square().sum(), views)[0].double())
    assert (gradients[0] - gradients[1]).norm() < 1e-3 * gradients[1].norm()


def test_an_unsupported_second_derivative_raises():
    views = reference.noisy_views(3, 3, 2).requires_grad_()
    for options in (
        {"solver": m3g.Sampled(rank=256, seed=0), "epsilon": 0.5},
        {"solver": "linear-program", "epsilon": 0},
    ):
        (gradient,) = torch.autograd.grad(m3g.matching_gap(views, **options), views, create_graph=True)
        with pytest.raises(
            ValueError, match="solver must be 'factored', 'dense' or 'sinkhorn' for second derivatives, got '"
        ):
            torch.autograd.grad(gradient.sum(), views)
    (gradient,) = torch.autograd.grad(m3g.matching_gap(views), views, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), views, create_graph=True)
    with pytest.raises(NotImplementedError, match="third derivatives of the entropic cost are not implemented"):
        torch.autograd.grad(second.sum(), views)


@pytest.mark.parametrize("cost", GRAPHS)
def test_inference_mode_is_supported(cost):
    views = reference.noisy_views(3, 4, 3)
    expected = m3g.matching_gap(views, cost=GRAPHS[cost], epsilon=2.0)
    with torch.inference_mode():
        torch.testing.assert_close(m3g.matching_gap(views, cost=GRAPHS[cost], epsilon=2.0), expected)
        torch.testing.assert_close(m3g.matching_gap(views.clone(), cost=GRAPHS[cost], epsilon=2.0), expected)
    torch.testing.assert_close(m3g.matching_gap(views, cost=GRAPHS[cost], epsilon=2.0), expected)


def test_vmap_is_an_error_of_one_line():
    views = torch.stack([reference.noisy_views(3, 3, 2)] * 2)
    with pytest.raises(ValueError, match=r"views must not be under torch.vmap.* \(b, k, n, d\)"):
        torch.func.vmap(m3g.matching_gap)(views)
