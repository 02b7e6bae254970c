"""LeJEPA: attract the views of an object to their mean, and regularise each view towards a standard normal."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize as to_unit_length

from m3g._checks import Views, positive_int
from m3g.losses.base import FunctionLoss, clean, outside_autocast
from m3g.losses.contrast import mean_where, present_points, some_object

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
    r"""LeJEPA loss: prediction term plus sketched isotropic Gaussian regularisation (SIGReg).

    .. math::
        (1 - \lambda) \frac{1}{knd} \sum_{l, i} \|x_l[i] - \bar x[i]\|^2
        + \frac{\lambda}{k} \sum_l \frac1A \sum_a n
        \int_{-3}^{3} \Big| \frac1n \sum_i e^{\mathrm i t \langle a, x_l[i] \rangle} - e^{-t^2/2} \Big|^2
        e^{-t^2/2} \, dt

    with A random unit directions a, redrawn at each call. The integrand is even in t and integrated by the trapezoidal
    rule with 17 knots on [0, 3].

    Args:
        views: (k, n, d) or k tensors (n, d).
        regularization: λ, from 0 to 1.
        directions: A, the number of directions.
        mask: bool (k, n). Means are over the views that are present, and objects with a single view have no first term.
            The second term of a view is over its n_l present points, with n_l in place of n.
        generator: CPU generator of the directions; None means torch's default generator.
        normalize: scale every vector to unit length first; False by default, because unit vectors cannot be normal.

    Complexity: O(k n A (d + 17)), memory O(17 k n A).

    >>> lejepa(torch.randn(4, 8, 16)).shape
    torch.Size([])

    Reference: Balestriero, LeCun, *LeJEPA: Provable and Scalable Self-Supervised Learning Without the Heuristics*,
    2025 :cite:`balestriero2025`.
    """
    _validated(regularization)
    positive_int("directions", directions)
    views, mask = clean(views, mask, normalize=normalize)
    d = views.shape[-1]
    present = present_points(views, mask)
    weight = present.to(views.dtype)

    own_views = weight.sum(0)
    several = present & (own_views >= 2)
    if mask is not None:
        some_object(several, has="two views")
    distances = (views - views.sum(0) / own_views.unsqueeze(-1)).square().mean(-1)
    prediction_term = mean_where(distances, several)
    axes = to_unit_length(torch.randn(directions, d, generator=generator, dtype=torch.float64), dim=-1).to(views)
    return (1 - regularization) * prediction_term + regularization * sigreg_term(views @ axes.T, weight)


def sigreg_term(projections: Tensor, weight: Tensor) -> Tensor:
    """Mean over views and directions of the normality statistic of projections (k, n, A) with weights (k, n)."""
    frequencies = torch.linspace(0, LARGEST_FREQUENCY, KNOTS, dtype=projections.dtype, device=projections.device)
    target = torch.exp(-frequencies.square() / 2)
    measure = 2 * LARGEST_FREQUENCY / (KNOTS - 1) * target
    measure[[0, -1]] /= 2
    points = weight.sum(1)
    normalised = weight / points.clamp(min=1).unsqueeze(-1)
    angles = projections.unsqueeze(-1) * frequencies
    real = torch.einsum("kn,knat->kat", normalised, angles.cos()) - target
    imaginary = torch.einsum("kn,knat->kat", normalised, angles.sin())
    statistic = (real.square() + imaginary.square()) @ measure  # (k, A)
    return mean_where(statistic.mean(-1) * points, points > 0)


def _validated(regularization: float) -> float:
    if not (math.isfinite(regularization) and 0 <= regularization <= 1):
        raise ValueError(f"regularization must be a number from 0 to 1, got {regularization!r}.")
    return regularization


class LeJEPA(FunctionLoss):
    """Module form of `lejepa`. With `gather=True` all processes use the directions of rank 0."""

    function = staticmethod(lejepa)

    def __init__(
        self,
        *,
        regularization: float = 0.05,
        directions: int = 256,
        generator: torch.Generator | None = None,
        normalize: bool = False,
        gather: bool = False,
    ) -> None:
        super().__init__(
            regularization=_validated(regularization),
            directions=positive_int("directions", directions),
            generator=generator,
            normalize=normalize,
            gather=gather,
        )
