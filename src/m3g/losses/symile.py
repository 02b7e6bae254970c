"""Symile: contrast of whole tuples by their multilinear inner product."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from m3g._checks import Views, fits, flag, one_of
from m3g.losses.base import FunctionLoss, clean, outside_autocast
from m3g.losses.contrast import require_objects
from m3g.losses.temperature import Temperature, check_temperature

NEGATIVES = ("n", "n_squared")
# Maximum size in bytes of the tensors of `negatives="n_squared"`.
MAX_TENSOR_BYTES = 4 * 2**30


@outside_autocast
def symile(
    views: Views,
    *,
    temperature: Tensor | float = 0.07,
    negatives: str = "n",
    rescale: bool = False,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    normalize: bool = True,
) -> Tensor:
    r"""Symile loss: for each view as anchor, cross-entropy of the true tuple among tuples with the same anchor point.

    The score of a tuple of points :math:`x_1, \dots, x_k` is :math:`s = \sum_c \prod_l x_l[c]`, a sum over the
    features c. The loss is the mean over anchor views l and objects i of

    .. math:: -\log \frac{e^{s_i / t}}{e^{s_i / t} + \sum_{\rm negatives} e^{s / t}}

    where :math:`s_i` is the score of the true tuple of object i, t is the temperature, and the negatives are other
    tuples that contain point i of view l.

    Args:
        views: (k, n, d) or k tensors (n, d).
        temperature: t, the inverse of the authors' logit scale.
        negatives: "n" for n - 1 tuples per anchor point, from a random permutation of each other view; by chance, one
            of them may be a true tuple. "n_squared" for all :math:`n^{k-1} - 1` other tuples of the point.
        rescale: multiply scores by :math:`d^{k/2 - 1}`. Unit vectors with equal positive features have the score
            :math:`d^{1 - k/2}`: 1 for two views, but 0.001 for six views with d = 32, which is too small for any
            temperature above 0.01. With `rescale`, their score is 1 for all k and d.
        mask: bool (k, n). Only complete tuples have a score: an incomplete object is not a positive, but its present
            points are part of negatives.
        generator: CPU generator of the permutations; None for torch's default generator.
        normalize: scale every vector to unit length first.

    Returns:
        A scalar.

    Complexity: O(k n² d) for "n", O(n^k (k + d)) for "n_squared".

    Example:
        >>> signs = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0)).sign()
        >>> joint = torch.stack([*signs, signs.prod(0)])  # any two of the three views are independent
        >>> bool(symile(joint, negatives="n_squared") < symile(joint[[0, 1, 0]], negatives="n_squared"))
        True

    Reference: Saporta, Puli, Goldstein, Ranganath, *Contrasting with Symile*, NeurIPS 2024 :cite:`saporta2024`.
    """
    check_temperature(temperature)
    one_of("negatives", negatives, NEGATIVES)
    flag("rescale", rescale)
    views, mask = clean(views, mask, normalize=normalize)
    if rescale:
        views = views.mul(views.shape[2] ** (1 / 2 - 1 / len(views)))
    if mask is not None:
        require_objects(mask.all(0), has="all its views")
    if negatives == "n":
        return _loss_from_shuffles(views, temperature, mask, generator)
    return _loss_from_all_tuples(views, temperature, mask)


def _loss_from_shuffles(
    views: Tensor, temperature: Tensor | float, mask: Tensor | None, generator: torch.Generator | None
) -> Tensor:
    """Return the loss with n - 1 negatives per anchor point, from permutations of the other views."""
    k, n, _ = views.shape
    label = torch.arange(n, device=views.device)
    true_pair = torch.eye(n, dtype=torch.bool, device=views.device)
    true_scores = views.prod(0).sum(-1)
    complete = None if mask is None else mask.all(0)
    total = views.new_zeros(())
    for l in range(k):
        others, complete_negative = torch.ones_like(views[0]), torch.ones_like(label, dtype=torch.bool)
        for m in range(k):
            if m != l:
                order = torch.randperm(n, generator=generator).to(views.device)
                others = others * views[m, order]
                if mask is not None:
                    complete_negative = complete_negative & mask[m, order]
        logits = torch.where(true_pair, true_scores, views[l] @ others.T) / temperature
        if complete is None:
            total = total + cross_entropy(logits, label)
        else:
            logits = logits.masked_fill(~(complete_negative | true_pair), -torch.inf)
            total = total + cross_entropy(logits[complete], label[complete])
    return total / k


def _loss_from_all_tuples(views: Tensor, temperature: Tensor | float, mask: Tensor | None) -> Tensor:
    """Return the loss with all other tuples of the anchor point as negatives."""
    k, n, d = views.shape
    fits(
        f"the scores of all tuples of {k} views of {n} points",
        views.element_size() * n ** (k - 1) * max(n, d),
        MAX_TENSOR_BYTES,
        'use negatives="n"',
    )
    # Row (i_2, …, i_k) is the entrywise product of these points of views 2 to k.
    others = views[1]
    for view in views[2:]:
        others = (others.unsqueeze(1) * view).reshape(-1, d)
    scores = (views[0] @ others.T / temperature).reshape((n,) * k)
    objects = torch.arange(n, device=views.device)
    true_scores = scores[(objects,) * k]
    complete = torch.ones_like(objects, dtype=torch.bool)
    if mask is not None:
        complete = mask.all(0)
        for l in range(k):
            present = mask[l].reshape([-1 if m == l else 1 for m in range(k)])
            scores = torch.where(present, scores, torch.finfo(scores.dtype).min / 2)
    total = views.new_zeros(())
    for l in range(k):
        log_denominator = scores.logsumexp([m for m in range(k) if m != l])
        total = total + (log_denominator - true_scores)[complete].mean()
    return total / k


class Symile(FunctionLoss):
    r"""Symile loss: module form of `symile`, which explains the symbols.

    The loss is the mean over anchor views l and objects i of

    .. math:: -\log \frac{e^{s_i / t}}{e^{s_i / t} + \sum_{\rm negatives} e^{s / t}}, \qquad
        s = \sum_c \prod_l x_l[c]

    Args:
        temperature, learn_temperature: initial value of the temperature, and whether it is learned; see `Temperature`.
        negatives, rescale, generator: as in `symile`. With `gather`, all processes use the permutations of rank 0.
        normalize, gather: as in `ViewLoss`.

    Shapes: `views` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(k n² d) for negatives="n", O(n^k (k + d)) for "n_squared".

    Example:
        >>> import torch
        >>> from m3g.losses import Symile
        >>> loss = Symile(rescale=True, generator=torch.Generator().manual_seed(0))
        >>> loss(torch.randn(4, 8, 16)).shape, len(list(loss.parameters()))  # the learned temperature
        (torch.Size([]), 1)

    Reference: Saporta et al., NeurIPS 2024 :cite:`saporta2024`.
    """

    function = staticmethod(symile)

    def __init__(
        self,
        *,
        temperature: float = 0.07,
        learn_temperature: bool = True,
        negatives: str = "n",
        rescale: bool = False,
        generator: torch.Generator | None = None,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        super().__init__(
            temperature=Temperature(temperature, learn=learn_temperature),
            negatives=one_of("negatives", negatives, NEGATIVES),
            rescale=flag("rescale", rescale),
            generator=generator,
            normalize=normalize,
            gather=gather,
        )
