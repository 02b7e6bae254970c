"""Noisy views for tests of the sampled solver, and the gap of a solver with its gradient."""

import torch

import m3g
from m3g.losses.m3g import solved_gap


def noisy_views(k, n, noise=1.0, *, d=16, seed=0, batch=(), dtype=torch.float32):
    """Return views of a shared base plus noise, on the sphere."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(*batch, 1, n, d, generator=generator)
    views = base + noise * torch.randn(*batch, k, n, d, generator=generator)
    return torch.nn.functional.normalize(views, dim=-1).to(dtype)


def gap_and_gradient(views, epsilon, solver, tol=1e-3, *, cost=m3g.CircularVariance()):  # noqa: B008 - it is frozen
    leaf = views.clone().requires_grad_()
    gap, solution = solved_gap(leaf, None, epsilon=epsilon, cost=cost, solver=solver, tol=tol)
    (gradient,) = torch.autograd.grad(gap.sum(), leaf)
    return gap.detach(), gradient, solution
