"""Aggregation of a two-view loss over k views: all pairs, or each view against the average of the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.nn.functional import normalize as to_unit_length

from m3g._checks import Views, flag, positive_int, same_shape, shape_of
from m3g.losses.base import FunctionLoss, clean, outside_autocast

PairLoss = Callable[[Tensor, Tensor], Tensor]


@outside_autocast
def pairwise(
    views: Views,
    pair_loss: PairLoss,
    *,
    mask: Tensor | None = None,
    teacher: Views | None = None,
    first: int | None = None,
    symmetric: bool = False,
    min_points: int = 1,
    normalize: bool = True,
) -> Tensor:
    r"""Mean of a pair loss over all pairs of views (`pwe`, Eq. 3 of the paper).

    .. math:: \frac{2}{k(k-1)} \sum_{l<m} \mathcal L_{\rm pair}(X_l, X_m)

    With a teacher, the second argument is a view :math:`T_m` of the teacher, and the mean is over ordered pairs:
    :math:`\frac{1}{k(k-1)} \sum_{l \neq m} \mathcal L_{\rm pair}(X_l, T_m)`.

    Args:
        views: (k, n, d) or k tensors (n, d).
        pair_loss: any function of two tensors (n, d) that returns a scalar. If it has an attribute `takes_batches` that
            is True, it must also accept p pairs as two tensors (p, n, d) and return the mean of their losses.
        mask: bool (k, n), False for missing points. A pair of views uses the objects that have both and is weighted
            by their number.
        teacher: the teacher's views, of the same shape; they receive no gradient.
        first: number of leading views used as first argument (for example the 2 full-size crops), each with all other
            views as second argument; None for no restriction.
        symmetric: use both orders of each pair, for a pair loss that is not symmetric. By default, a pair is used in
            the order l < m; with a teacher, in both orders; with `first`, in the orders in which the first argument is
            one of the leading views.
        min_points: skip pairs of views with fewer objects in common; use 2 for a contrastive loss.
        normalize: scale every vector to unit length first.

    Returns:
        A scalar.

    Complexity: k(k - 1)/2 evaluations of the pair loss without `first`, twice as many with a teacher or `symmetric`;
    O(k² n² d) for InfoNCE.

    Example:
        >>> from m3g.losses import byol
        >>> x, y = torch.eye(2)
        >>> views = torch.stack([x, x, y]).unsqueeze(1)  # three views of one object; one pair of three agrees
        >>> round(pairwise(views, byol).item(), 4)  # (0 + 2 + 2) / 3
        1.3333

    Reference: Piran et al., ICML 2024 :cite:`piran2024`.
    """
    symmetric = flag("symmetric", symmetric)
    points, targets, present = _validated_sides(views, mask, teacher, normalize, min_points)
    k = len(points)
    if first is not None and positive_int("first", first) > k:
        raise ValueError(f"first must be a number of views up to k = {k}, got {first}.")
    if first is None and teacher is None and not symmetric:
        pairs = [(l, m) for l in range(k) for m in range(l + 1, k)]
    else:
        pairs = [(l, m) for l in range(k if first is None else first) for m in range(k) if m != l]
        if symmetric:
            pairs += [(m, l) for l, m in pairs if (m, l) not in pairs]
    if present is None:
        if getattr(pair_loss, "takes_batches", False):
            left, right = (list(side) for side in zip(*pairs))
            return pair_loss(points[left], targets[right])
        return mean_over(pair_loss, ((points[l], targets[m], None) for l, m in pairs), min_points)
    triples = ((points[l], targets[m], present[l] & present[m]) for l, m in pairs)
    return mean_over(pair_loss, triples, min_points)


@outside_autocast
def average_of_rest(
    views: Views,
    pair_loss: PairLoss,
    *,
    mask: Tensor | None = None,
    teacher: Views | None = None,
    renormalize: bool = True,
    symmetric: bool = False,
    min_points: int = 1,
    normalize: bool = True,
) -> Tensor:
    r"""Mean of a pair loss between each view and the average of the others (`ave`, Eq. 4 of the paper).

    .. math:: \frac1k \sum_l \mathcal L_{\rm pair}\Big(X_l, \frac1{k-1} \sum_{m \neq l} X_m\Big)

    With a teacher, the average is over the other views of the teacher.

    Args:
        views, pair_loss, mask, teacher, min_points, normalize: as in `pairwise`. With a mask, the average is over
            the other views that are present; objects with a single view are skipped.
        renormalize: scale the average to unit length, because pair losses expect unit vectors. False computes exactly
            the formula above. The average is then shorter where the other views disagree, which has the effect of a
            higher temperature. For BYOL without a mask, `average_of_rest` then equals `pairwise`.
        symmetric: also use the average as first argument and the view as second.

    Returns:
        A scalar.

    Complexity: k evaluations of the pair loss, twice as many with `symmetric`; O(k n² d) for InfoNCE.

    Example:
        >>> from m3g.losses import byol
        >>> views = torch.randn(3, 8, 4)
        >>> loss = average_of_rest(views, byol, renormalize=False)
        >>> bool(torch.isclose(loss, pairwise(views, byol)))
        True

    Reference: Piran et al., ICML 2024 :cite:`piran2024`.
    """
    renormalize, symmetric = flag("renormalize", renormalize), flag("symmetric", symmetric)
    points, targets, present = _validated_sides(views, mask, teacher, normalize, min_points)
    if present is None:
        rest = (targets.sum(0) - targets) / (len(points) - 1)
        has_rest: Iterable[Tensor | None] = [None] * len(points)
    else:
        num_others = present.sum(0) - present.to(torch.int64)
        rest = (targets.sum(0) - targets) / num_others.clamp(min=1).unsqueeze(-1)
        has_rest = present & (num_others > 0)
    if renormalize:
        # eps keeps the gradient finite where the mean of the other views is nearly zero.
        rest = to_unit_length(rest, dim=-1, eps=1e-3)
    if present is None and getattr(pair_loss, "takes_batches", False):
        both_ways = [(points, rest), (rest, points)] if symmetric else [(points, rest)]
        return pair_loss(*(torch.cat(side) for side in zip(*both_ways)))
    triples = list(zip(points, rest, has_rest))
    if symmetric:
        triples += [(average, view, present) for view, average, present in triples]
    return mean_over(pair_loss, triples, min_points)


def _validated_sides(
    views: Views, mask: Tensor | None, teacher: Views | None, normalize: bool, min_points: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the validated first and second arguments of the pair loss (k, n, d), and the mask (k, n)."""
    positive_int("min_points", min_points)
    points, present = clean(views, mask, normalize=normalize, min_points=min_points)
    if teacher is None:
        return points, points, present
    targets, _ = clean(teacher, present, normalize=normalize, min_points=min_points, name="teacher")
    same_shape(points, targets)
    return points, targets.detach().to(points.dtype), present


def mean_over(pair_loss: PairLoss, triples: Iterable[tuple[Tensor, Tensor, Tensor | None]], min_points: int) -> Tensor:
    """Return the mean of the pair loss over triples (a, b, present), weighted by their numbers of objects.

    `present` (bool, n) selects the objects of a and b (n, d) that are used; None selects all. Triples with fewer than
    `min_points` selected objects are skipped.
    """
    total, weight = None, 0
    for a, b, present in triples:
        if present is not None:
            a, b = a[present], b[present]
        if len(a) < min_points:
            continue
        value = pair_loss(a, b)
        if not isinstance(value, Tensor) or value.ndim > 0:
            got = f"a tensor of shape {shape_of(value)}" if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"pair_loss must be a function that returns a scalar tensor, got {got}.")
        total = len(a) * value if total is None else total + len(a) * value
        weight += len(a)
    if total is None:
        raise ValueError(f"mask must leave at least {min_points} objects with the same two views, got fewer.")
    return total / weight


class Pairwise(FunctionLoss):
    r"""Module form of `pairwise` (Eq. 3 of the paper).

    .. math:: \frac{2}{k(k-1)} \sum_{l<m} \mathcal L_{\rm pair}(X_l, X_m)

    Args:
        pair_loss, first, symmetric, min_points: as in `pairwise`. If the pair loss is a module, its parameters are
            parameters of this module.
        normalize, gather: as in `ViewLoss`.

    Shapes: `views` and `teacher` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: k(k - 1)/2 evaluations of the pair loss without `first`, twice as many with a teacher or `symmetric`.

    Example:
        >>> import torch
        >>> from m3g.losses import Pairwise
        >>> loss = Pairwise(torch.nn.functional.mse_loss, normalize=False)
        >>> views = [torch.zeros(8, 4), torch.zeros(8, 4), torch.ones(8, 4)]
        >>> round(loss(views).item(), 4)  # (0 + 1 + 1) / 3
        0.6667

    Reference: Piran et al., ICML 2024 :cite:`piran2024`.
    """

    function = staticmethod(pairwise)
    takes_teacher = True

    def __init__(
        self,
        pair_loss: PairLoss,
        *,
        first: int | None = None,
        symmetric: bool = False,
        min_points: int = 1,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        super().__init__(
            pair_loss=pair_loss,
            first=first,
            symmetric=symmetric,
            min_points=min_points,
            normalize=normalize,
            gather=gather,
        )


class AverageOfRest(FunctionLoss):
    r"""Module form of `average_of_rest` (Eq. 4 of the paper).

    .. math:: \frac1k \sum_l \mathcal L_{\rm pair}\Big(X_l, \frac1{k-1} \sum_{m \neq l} X_m\Big)

    Args:
        pair_loss, renormalize, symmetric, min_points: as in `average_of_rest`. If the pair loss is a module, its
            parameters are parameters of this module.
        normalize, gather: as in `ViewLoss`.

    Shapes: `views` and `teacher` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: k evaluations of the pair loss, twice as many with `symmetric`.

    Example:
        >>> import torch
        >>> from m3g.losses import AverageOfRest
        >>> loss = AverageOfRest(torch.nn.functional.mse_loss, normalize=False, renormalize=False)
        >>> loss([torch.zeros(8, 4), torch.zeros(8, 4), torch.ones(8, 4)]).item()  # (1/4 + 1/4 + 1) / 3
        0.5

    Reference: Piran et al., ICML 2024 :cite:`piran2024`.
    """

    function = staticmethod(average_of_rest)
    takes_teacher = True

    def __init__(
        self,
        pair_loss: PairLoss,
        *,
        renormalize: bool = True,
        symmetric: bool = False,
        min_points: int = 1,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        super().__init__(
            pair_loss=pair_loss,
            renormalize=renormalize,
            symmetric=symmetric,
            min_points=min_points,
            normalize=normalize,
            gather=gather,
        )
