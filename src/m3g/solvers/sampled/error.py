"""Error estimates of a sampled solution.

The samples consist of two independent halves. To first order each half would give the coupling P (1 ± s ± δ), where P
is the solution, s is +1 on the rows of the first half and -1 on those of the second (0 on exact rows), and δ is the
response of the log scalings, which preserves the marginals: H δ = -(marginals of P s). Therefore

- P (s + δ), half the difference between the halves, is a draw of the error of P and thus of the gradient, up to
  overfitting of the log scalings (see `fit_factor`);
- the value on a list is a maximum and thus biased upwards by ½ ⟨δ, H δ⟩, and twice as much on a half; this bias is
  subtracted;
- the remaining noise of the value is that of the mass at fixed log scalings, estimated from the variance of the draws
  of each component of the proposal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g.costs import Coupling, Problem
from m3g.costs.coupling import all_equal
from m3g.costs.multilinear import products_without_each
from m3g.solvers.sampled.ascent import ListPoint
from m3g.solvers.sampled.interfaces import Listed

# Mean leverage beyond which the factor no longer grows; the result is untrusted well before that.
MOST_LEVERAGE = 0.95


@dataclass(frozen=True)
class SamplingError:
    """Standard errors of the value / eps and of the gradient relative to its norm, and the bias of the value / eps.

    `gradients` are those of the value with respect to the problem's tensors, a by-product; None if nothing was sampled.
    """

    value: Tensor
    gradient: Tensor
    bias: Tensor
    gradients: tuple[Tensor, ...] | None = None


class _TrueMatching(Coupling):
    """Coupling J, which matches row i of every view with row i of all others."""

    def __init__(self, problem: Problem, mass: Tensor):
        self.sizes = problem.sizes
        n = problem.sizes[0]
        self.diagonal = (mass / n).to(problem.dtype).expand(-1, n)

    def marginal(self, l: int) -> Tensor:
        return self.diagonal

    def pair(self, l: int, m: int) -> Tensor:
        return torch.diag_embed(self.diagonal)

    def pull(self, points: Tensor) -> Tensor:
        k = len(self.sizes)
        total: Tensor = points.unflatten(1, (k, -1)).sum(1) * self.diagonal.unsqueeze(-1)
        return total.repeat(1, k, 1)

    def product_pull(self, points: Tensor) -> Tensor:
        views = points.unflatten(1, (len(self.sizes), -1)).unbind(1)
        mass = self.diagonal.unsqueeze(-1)
        return torch.cat([mass * product for product in products_without_each(views)], 1)

    def weighted_pull(self, points: Tensor, divisor: Callable[[Tensor], Tensor]) -> Tensor:
        k = len(self.sizes)
        total: Tensor = points.unflatten(1, (k, -1)).sum(1)
        weighted = self.diagonal / divisor((total / k).square().sum(-1))
        return (total * weighted.unsqueeze(-1)).repeat(1, k, 1)

    def rows(self) -> list[tuple[slice, Tensor]]:
        raise NotImplementedError("the true matching is never built in full here")


def sampling_error(listed: Listed, point: ListPoint, problem: Problem, draws_each: int) -> SamplingError:
    """Estimate the errors of a solution on a list with `draws_each` draws per component of the proposal."""
    coupling, b, problem = point.coupling, point.target.shape[0], problem.detached()
    zero = torch.zeros_like(point.target)
    signs = listed.halves()
    imbalance = coupling.changed(zero, signs).marginals()
    response = point.solve(-imbalance, rtol=0.1)
    bias = -(response * imbalance).sum(1) / 2
    # Draws of one component of the proposal are one stride apart.
    weights = coupling.sample_weights()
    drawn = weights.reshape(b, draws_each, -1)
    scatter = drawn.var(1).sum(1) * draws_each if drawn.numel() else zero[:, 0]
    half_difference = problem.gradient(coupling.changed(response, signs))
    gradients = loss_gradients = problem.gradient(coupling)
    if all_equal(problem.sizes):
        mass = point.target[:, : problem.sizes[0]].sum(1, keepdim=True)
        loss_gradients = tuple(g - t for g, t in zip(gradients, problem.gradient(_TrueMatching(problem, mass))))
    length = _norm(loss_gradients, b).clamp_min(torch.finfo(problem.dtype).tiny)
    relative = _norm(half_difference, b) / length * fit_factor(weights, bias)
    return SamplingError((scatter + bias.square() / 4).sqrt(), relative, bias, gradients)


def fit_factor(weights: Tensor, bias: Tensor) -> Tensor:
    """Return the ratio of errors to their apparent size on the sample used to fit the log scalings: (b,), at least 1.

    A sample with leverage h attracts the log scalings, so that only 1 - h of its error is visible; dividing by 1 - h is
    the jackknife. The mean of h over the mass is twice the bias of the value. The distribution of h over samples of
    weight w is modelled by the leverage of independent samples, h = a w / (1 + a w), with a such that the mean is
    correct: the factor is √(Σ w² (1 + a w)² / Σ w²).

    Args:
        weights: mass of the samples in the coupling (b, s).
        bias: bias of the value / eps (b,).

    Example:
        >>> fit_factor(torch.full((1, 100), 0.01), torch.tensor([0.05]))  # for equal weights: 1 / (1 - 2 bias)
        tensor([1.1111])
    """
    total = weights.sum(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    weights = weights / total
    mean = (2 * bias.unsqueeze(1) / total).clamp(min=0.0, max=MOST_LEVERAGE)
    a = torch.zeros_like(mean)
    # The mean leverage is concave in a: Newton steps converge to the root from below.
    for _ in range(10):
        grown = 1 + a * weights
        slope = (weights / grown).square().sum(1, keepdim=True)
        reached = (a * weights.square() / grown).sum(1, keepdim=True)
        a = a + (mean - reached) / slope.clamp_min(torch.finfo(weights.dtype).tiny)
    squares = weights.square().sum(1)
    inflated = (weights * (1 + a * weights)).square().sum(1)
    return torch.where(squares > 0, inflated / squares, torch.ones_like(inflated)).sqrt()


def _norm(parts: tuple[Tensor, ...], b: int) -> Tensor:
    return torch.stack([part.reshape(b, -1).double().square().sum(1) for part in parts]).sum(0).sqrt()
