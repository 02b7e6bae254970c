"""LeJEPA: attract the views of an object to their mean, and each view to a standard normal distribution."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize as to_unit_length

from m3g._checks import Views, finite, positive_int
from m3g.losses.base import FunctionLoss, clean, outside_autocast
from m3g.losses.contrast import mean_where, present_points, require_objects

# Upper limit of the integral over t, and number of knots of its quadrature on [0, MAX_FREQUENCY].
MAX_FREQUENCY, KNOTS = 3.0, 17


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

    where :math:`\bar x[i]` is the mean of the views of object i, the A vectors a are random unit directions, redrawn at
    each call, and :math:`\mathrm i` is the imaginary unit. The integrand is even in t and is integrated by the
    trapezoidal rule with 17 knots on [0, 3].

    Args:
        views: (k, n, d) or k tensors (n, d).
        regularization: λ, from 0 to 1.
        directions: A, the number of directions.
        mask: bool (k, n). Means are over the views that are present, and objects with a single view are skipped in the
            first term. The second term of view l uses its n_l present points, with n_l in place of n.
        generator: CPU generator of the directions; None for torch's default generator.
        normalize: scale every vector to unit length first; False by default, because unit vectors are not normally
            distributed.

    Returns:
        A scalar.

    Complexity: O(k n A (d + T)) with T = 17 knots, memory O(k n A T).

    Example:
        >>> _ = torch.manual_seed(0)
        >>> views = torch.randn(8, 16) + 0.5 * torch.randn(4, 8, 16)
        >>> wrong = torch.cat([views[:1].roll(1, dims=1), views[1:]])  # view 0 is matched with wrong objects
        >>> bool(lejepa(views) < lejepa(wrong))
        True

    Reference: Balestriero, LeCun, *LeJEPA: Provable and Scalable Self-Supervised Learning Without the Heuristics*,
    2025 :cite:`balestriero2025`.
    """
    _checked_regularization(regularization)
    positive_int("directions", directions)
    views, mask = clean(views, mask, normalize=normalize)
    d = views.shape[-1]
    present = present_points(views, mask)
    weight = present.to(views.dtype)

    num_views = weight.sum(0)
    has_others = present & (num_views >= 2)
    if mask is not None:
        require_objects(has_others, has="two views")
    squared_distances = (views - views.sum(0) / num_views.unsqueeze(-1)).square().mean(-1)
    prediction_term = mean_where(squared_distances, has_others)
    unit_vectors = to_unit_length(torch.randn(directions, d, generator=generator, dtype=torch.float64), dim=-1)
    regularization_term = sigreg_term(views @ unit_vectors.to(views).T, weight)
    return (1 - regularization) * prediction_term + regularization * regularization_term


def sigreg_term(projections: Tensor, weight: Tensor) -> Tensor:
    """Return the factor of λ in the formula of `lejepa`.

    Args:
        projections: (k, n, A), the inner products of points and directions.
        weight: (k, n), 1 for present points and 0 for missing ones.
    """
    frequencies = torch.linspace(0, MAX_FREQUENCY, KNOTS, dtype=projections.dtype, device=projections.device)
    gaussian = torch.exp(-frequencies.square() / 2)
    quadrature_weights = 2 * MAX_FREQUENCY / (KNOTS - 1) * gaussian
    quadrature_weights[[0, -1]] /= 2
    num_points = weight.sum(1)
    mean_weights = weight / num_points.clamp(min=1).unsqueeze(-1)
    angles = projections.unsqueeze(-1) * frequencies
    real = torch.einsum("kn,knat->kat", mean_weights, angles.cos()) - gaussian
    imaginary = torch.einsum("kn,knat->kat", mean_weights, angles.sin())
    integral = (real.square() + imaginary.square()) @ quadrature_weights  # (k, A)
    return mean_where(integral.mean(-1) * num_points, num_points > 0)


def _checked_regularization(regularization: float) -> float:
    if not 0 <= finite("regularization", regularization) <= 1:
        raise ValueError(f"regularization must be a number from 0 to 1, got {regularization!r}.")
    return regularization


class LeJEPA(FunctionLoss):
    r"""LeJEPA loss: module form of `lejepa`, which explains the symbols.

    .. math::
        (1 - \lambda) \frac{1}{knd} \sum_{l, i} \|x_l[i] - \bar x[i]\|^2
        + \frac{\lambda}{k} \sum_l \frac1A \sum_a n
        \int_{-3}^{3} \Big| \frac1n \sum_i e^{\mathrm i t \langle a, x_l[i] \rangle} - e^{-t^2/2} \Big|^2
        e^{-t^2/2} \, dt

    Args:
        regularization, directions, generator: as in `lejepa`. With `gather`, all processes use the directions of
            rank 0.
        normalize, gather: as in `ViewLoss`.

    Shapes: `views` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(k n A (d + T)) with T = 17 knots, memory O(k n A T).

    Example:
        >>> import torch
        >>> from m3g.losses import LeJEPA
        >>> loss = LeJEPA(directions=64, generator=torch.Generator().manual_seed(0))
        >>> loss(torch.randn(4, 8, 16)).shape
        torch.Size([])

    Reference: Balestriero, LeCun, 2025 :cite:`balestriero2025`.
    """

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
            regularization=_checked_regularization(regularization),
            directions=positive_int("directions", directions),
            generator=generator,
            normalize=normalize,
            gather=gather,
        )
