"""LeJEPA: views meet at their mean, and the points of each view are spread like a standard normal."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize as to_unit_length

from m3g._checks import Views, positive_int
from m3g.losses.base import ViewLoss, clean, outside_autocast
from m3g.losses.contrast import enough_points, mean_where, present_points, some_object
from m3g.losses.gather import shared_generator

LARGEST_FREQUENCY, KNOTS = 3.0, 17


@outside_autocast
def lejepa(
    views: Views,
    *,
    regularization: float = 0.05,
    directions: int = 256,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    normalize: bool = False,
) -> Tensor:
    r"""Each view of an object equals the mean of its views, and every view looks normal along every direction.

    .. math::
        (1 - \lambda) \frac{1}{knd} \sum_{l, i} \|x_l[i] - \bar x[i]\|^2
        + \frac{\lambda}{k} \sum_l \frac1A \sum_a n
        \int_{-3}^{3} \Big| \frac1n \sum_i e^{\mathrm i t \langle a, x_l[i] \rangle} - e^{-t^2/2} \Big|^2
        e^{-t^2/2} \, dt

    with A random unit directions a, drawn anew at each call (SIGReg). The integral is even in t, and taken by the
    trapezoidal rule with 17 knots on [0, 3].

    Args:
        views: (k, n, d) or k tensors (n, d).
        regularization: λ, from 0 to 1.
        directions: A, their number.
        mask: bool (k, n). The mean of an object is over its views, and an object with a single view has no first
            term; the second term of a view is over its points, n being their number.
        generator: source of the directions (a generator of the CPU); None is torch's own.
        normalize: False unless asked: unit vectors cannot be standard normal.

    Cost: k n A (d + 17), memory 17 k n A. No negatives, no temperature.

    >>> lejepa(torch.randn(4, 8, 16)).shape
    torch.Size([])

    Reference: Balestriero, LeCun, *LeJEPA: Provable and Scalable Self-Supervised Learning Without the Heuristics*,
    2025 (arXiv 2511.08544).
    """
    _check(regularization)
    positive_int("directions", directions)
    views, mask = clean(views, mask, normalize=normalize)
    enough_points(views)
    d = views.shape[-1]
    present = present_points(views, mask)
    weight = present.to(views.dtype)

    own_views = weight.sum(0)
    several = present & (own_views >= 2)
    if mask is not None:
        some_object(several, has="two views")
    apart = (views - views.sum(0) / own_views.unsqueeze(-1)).square().mean(-1)
    agreement = mean_where(apart, several)
    axes = to_unit_length(torch.randn(directions, d, generator=generator, dtype=torch.float64), dim=-1).to(views)
    return (1 - regularization) * agreement + regularization * _not_normal(views @ axes.T, weight)


def _not_normal(projections: Tensor, weight: Tensor) -> Tensor:
    """The mean over views and directions of the statistic of projections (k, n, A), absent points weighing 0."""
    frequencies = torch.linspace(0, LARGEST_FREQUENCY, KNOTS, dtype=projections.dtype, device=projections.device)
    target = torch.exp(-frequencies.square() / 2)
    measure = 2 * LARGEST_FREQUENCY / (KNOTS - 1) * target
    measure[[0, -1]] /= 2
    points = weight.sum(1)
    share = weight / points.clamp(min=1).unsqueeze(-1)
    angles = projections.unsqueeze(-1) * frequencies
    real = torch.einsum("kn,knat->kat", share, angles.cos()) - target
    imaginary = torch.einsum("kn,knat->kat", share, angles.sin())
    statistic = (real.square() + imaginary.square()) @ measure  # (k, A)
    return mean_where(statistic.mean(-1) * points, points > 0)


def _check(regularization: float) -> None:
    if not (math.isfinite(regularization) and 0 <= regularization <= 1):
        raise ValueError(f"regularization must be a number from 0 to 1, got {regularization!r}.")


class LeJEPA(ViewLoss):
    """`lejepa` as a module; it does not normalise unless asked. With `gather=True` rank 0 draws for all."""

    def __init__(
        self,
        *,
        regularization: float = 0.05,
        directions: int = 256,
        generator: torch.Generator | None = None,
        normalize: bool = False,
        gather: bool = False,
    ) -> None:
        super().__init__(normalize=normalize, gather=gather)
        _check(regularization)
        self.regularization = regularization
        self.directions = positive_int("directions", directions)
        self.generator = generator

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        generator = self.generator
        if self.gather:
            generator = shared_generator(generator, device=views.device)
        return lejepa(
            views,
            regularization=self.regularization,
            directions=self.directions,
            mask=mask,
            generator=generator,
            normalize=self.normalize,
        )
