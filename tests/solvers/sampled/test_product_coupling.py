"""The coupling of products over the views: draws from it, and gradients that are not computed twice."""

import torch

import m3g
from m3g.solvers.gradients.value import differentiable_value
from m3g.solvers.sampled.log_kernel import log_kernel_of
from m3g.solvers.sampled.product_coupling import ProductCoupling
from solvers.noisy import noisy_views
from solvers.sampled.kernels import EPSILON, coupling_of, draws_of, kernel_list, problem_of


def test_draws_have_the_distribution_of_the_coupling():
    coupling = coupling_of(kernel_list("products", log_kernel_of(problem_of((4, 3, 5)), EPSILON), 0))
    ((_, tensor),) = coupling.rows()
    drawn = coupling.draw(40_000, draws_of(1))[0]
    indices = (drawn[:, 0] * 3 + drawn[:, 1]) * 5 + drawn[:, 2]
    frequencies = torch.bincount(indices, minlength=60) / len(indices)
    torch.testing.assert_close(frequencies.double(), tensor.flatten(), atol=0.012, rtol=0)


def test_the_gradient_of_the_error_estimate_is_reused(monkeypatch):
    views = noisy_views(3, 16, d=8).requires_grad_()
    problem = m3g.CircularVariance()(views)
    solution = m3g.Sampled(form="products", rank=256, seed=0).solve(problem, epsilon=0.2, tol=1e-3, weights=None)
    (expected,) = problem.detached().gradient(solution.coupling_form)
    monkeypatch.setattr(ProductCoupling, "pull", None)
    (gradient,) = torch.autograd.grad(differentiable_value(solution).sum(), views)
    torch.testing.assert_close(gradient, expected.reshape(views.shape), atol=0, rtol=0)
