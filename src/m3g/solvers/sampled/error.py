"""Error estimates of a sampled solution.

The samples consist of two independent halves. Let P be the coupling of all samples, and σ = +1 on rows (see
`SampledKernel`) of the first half, -1 on rows of the second, 0 on rows that were not sampled. To first order, the
halves alone would give the couplings P ∘ (1 + σ + ⊕δ) and P ∘ (1 - σ - ⊕δ). Here δ is the change of the log scalings
that preserves the marginals: it solves H δ = -m(P ∘ σ), where H is the Hessian of the dual and m are the marginals.
Therefore:

- Half the difference between these two couplings, P ∘ (σ + ⊕δ), has the distribution of the error of P, up to
  overfitting of the log scalings (`overfit_factor`). Its gradient estimates the error of the gradient.
- The value is a maximum over the log scalings and thus biased upwards, by ½ ⟨δ, H δ⟩ in units of epsilon. This bias is
  subtracted.
- The remaining error of the value is that of the mass at fixed log scalings. It is estimated from the variance over the
  draws of each component of the proposal (`mass_variance`), corrected for overfitting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g.costs import Coupling, Problem
from m3g.costs.coupling import all_equal
from m3g.costs.multilinear import products_without_each
from m3g.solvers.sampled.ascent import SampledPoint
from m3g.solvers.sampled.interfaces import SampledKernel

# Upper bound of the mean leverage (`overfit_factor`); results are already untrusted at much lower values.
MAX_LEVERAGE = 0.95


@dataclass(frozen=True)
class SamplingError:
    """Error estimates of a sampled solution.

    Attributes:
        value: (b,), standard error of the value, in units of epsilon.
        gradient: (b,), standard error of the gradient of the loss, relative to the norm of that gradient; of the value
            instead of the loss if the views have different sizes.
        bias: (b,), bias of the value, in units of epsilon.
        gradients: derivatives of the value with respect to the problem's tensors; None if they were not computed.
    """

    value: Tensor
    gradient: Tensor
    bias: Tensor
    gradients: tuple[Tensor, ...] | None = None


class _TrueMatching(Coupling):
    """The true matching J, with equal mass on the n true tuples."""

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
        raise NotImplementedError("the true matching is not available as a full tensor")


def sampling_error(
    kernel: SampledKernel, point: SampledPoint, problem: Problem, draws_per_centre: int
) -> SamplingError:
    """Estimate the errors of a solution from a kernel with `draws_per_centre` draws per component of the proposal."""
    coupling, b, problem = point.coupling, point.target.shape[0], problem.detached()
    zero = torch.zeros_like(point.target)
    signs = kernel.half_signs()
    imbalance = coupling.directional_derivative(zero, signs).marginals()
    response = point.solve(-imbalance, rtol=0.1)
    bias = -(response * imbalance).sum(1) / 2
    weights = coupling.sample_weights()
    overfit = overfit_factor(weights, bias)
    variance = mass_variance(weights, draws_per_centre) * overfit.square()
    half_difference = problem.gradient(coupling.directional_derivative(response, signs))
    gradients = loss_gradients = problem.gradient(coupling)
    if all_equal(problem.sizes):
        mass = point.target[:, : problem.sizes[0]].sum(1, keepdim=True)
        loss_gradients = tuple(g - t for g, t in zip(gradients, problem.gradient(_TrueMatching(problem, mass))))
    length = _norm(loss_gradients, b).clamp_min(torch.finfo(problem.dtype).tiny)
    relative = _norm(half_difference, b) / length * overfit
    # The bias is estimated on the samples to which the potentials were fitted. Its error may be as large as the bias.
    return SamplingError((variance + bias.square()).sqrt(), relative, bias, gradients)


def mass_variance(weights: Tensor, draws_per_centre: int) -> Tensor:
    """Return the variance of the total mass of samples with masses `weights` (b, s): (b,).

    If the samples are tuples, the draws of a component within a half are stratified in each view, and thus dependent.
    Only the variance between the two halves is then an unbiased estimate. The variance over all draws has more degrees
    of freedom (three instead of one for four draws), but is too small if the mass depends on interactions of views, for
    example on the product of signs. The larger of the two is used.

    If few components have most of the variance, its estimate is inaccurate, and the error in units of the estimate has
    Student's distribution. The result is therefore multiplied by the variance of this distribution, ν / (ν - 2), where
    ν is the effective number of components, at least 3.
    """
    # The draws of one component are a constant stride apart.
    drawn = weights.reshape(len(weights), 2, draws_per_centre // 2, -1)
    if not drawn.numel():
        return torch.zeros_like(weights.sum(1))
    by_component = drawn.flatten(1, 2).var(1) * draws_per_centre
    over_all = by_component.sum(1)
    first, second = drawn.sum(2).unbind(1)
    variance = torch.maximum(over_all, (first - second).square().sum(1))
    tiny = torch.finfo(weights.dtype).tiny
    num_effective = (over_all.square() / by_component.square().sum(1).clamp_min(tiny)).clamp_min(3.0)
    return variance * num_effective / (num_effective - 2)


def overfit_factor(weights: Tensor, bias: Tensor) -> Tensor:
    """Return the ratio of the true error to the error observed on the samples: (b,), at least 1.

    The log scalings are fitted to the samples. If a sample has leverage h, only the fraction 1 - h of its error is
    observed, and division by 1 - h corrects this, as in the jackknife. The sum of h times the mass of each sample is
    twice the bias of the value. Let w be the fraction of the sampled mass that a sample has. Its leverage is modelled
    as that of independent samples, h = c w / (1 + c w), with c such that this sum is correct. The factor is then
    √(Σ w² (1 + c w)² / Σ w²).

    Args:
        weights: (b, s), mass of the samples in the coupling.
        bias: (b,), bias of the value, in units of epsilon.

    Example:
        >>> overfit_factor(torch.full((1, 100), 0.01), torch.tensor([0.05]))  # for equal weights: 1 / (1 - 2 bias)
        tensor([1.1111])
    """
    total = weights.sum(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    weights = weights / total
    mean = (2 * bias.unsqueeze(1) / total).clamp(min=0.0, max=MAX_LEVERAGE)
    c = torch.zeros_like(mean)
    # The mean leverage is concave in c, so Newton steps converge to the root from below.
    for _ in range(10):
        inflation = 1 + c * weights
        slope = (weights / inflation).square().sum(1, keepdim=True)
        mean_leverage = (c * weights.square() / inflation).sum(1, keepdim=True)
        c = c + (mean - mean_leverage) / slope.clamp_min(torch.finfo(weights.dtype).tiny)
    squares = weights.square().sum(1)
    inflated = (weights * (1 + c * weights)).square().sum(1)
    return torch.where(squares > 0, inflated / squares, torch.ones_like(inflated)).sqrt()


def _norm(parts: tuple[Tensor, ...], b: int) -> Tensor:
    """Return the Euclidean norm of all parts together, for each of b problems: (b,)."""
    return torch.stack([part.reshape(b, -1).double().square().sum(1) for part in parts]).sum(0).sqrt()
