"""Detection of mismatched entries during training, and their exclusion from the loss.

Every step compares the views of a batch of n rows. The score u_lm[i, j] of row i in view l and row j in view m is the
logarithm of n times the softmax of their similarities, averaged over both directions. Scores of matching rows (i = j)
and of different rows are modelled as Gaussians with means mu and nu and a common variance var, estimated by running
averages. The evidence that the entries of row i in views l and m describe the same object is the log-likelihood ratio

    e_lm[i] = (mu - nu) / var * (u_lm[i, i] - (mu + nu) / 2).

An entry is reliable if it agrees with the other reliable entries of its row, so the reliabilities r of the entries of a
row solve

    r_l = sigmoid(log((1 - p_l) / p_l) + sum over m != l of r_m e_lm),

where p_l is the estimated fraction of mismatches in view l.

A visit of a pair of entries is a step that compares the pair and in which the rows of its two views are distinguishable
(see `SEPARATION`). A network first learns what many rows have in common and later memorises single rows, including
mismatched ones. Pairs in the loss are therefore evaluated only at their first three visits. Pairs with an excluded
entry are evaluated at every visit and may be included again. A mismatch in the loss costs much more than the temporary
exclusion of a correct entry, so an evaluated entry is excluded until its log(r / (1 - r)) reaches 5. If mismatches are
so frequent that the value without evidence, log((1 - p_l) / p_l), is below 3, it is sufficient to exceed that value by
2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from m3g.losses import gather_views
from m3g.losses.base import outside_autocast

TEMPERATURE = 0.1  # of the softmax
EVALUATED_VISITS = 3  # number of evaluated visits of a pair in the loss
VISIT_WEIGHT = 0.3  # minimum weight of the newest visit of an excluded pair
STEP_WEIGHT = 0.02  # minimum weight of the newest step in the running averages
SEPARATION = 1.0  # (mu - nu)² / var above which the rows of two views are distinguishable
TRUSTED, PROVEN = 5.0, 2.0  # minimum log odds of an included entry: absolute, or above those without evidence
MAX_EVIDENCE = 8.0  # largest absolute value of e_lm[i]
MIN_MISMATCH_FRACTION, MAX_MISMATCH_FRACTION = 0.002, 0.45  # bounds of p_l
ROUNDS = 20  # iterations of the equations for r


class Mismatch(nn.Module):
    """Running estimates of which entries match their row, from the embeddings of training batches.

    Args:
        k: number of views.
        rows: number of rows, numbered from 0.

    Attributes:
        evidence: (k, k, rows), the running average of e_lm[i].
        visits: (k, k, rows), the number of visits of each pair of views of a row.
        moments: (3, k, k), the running averages of mu, nu and var.
        steps: (k, k), the number of steps in `moments`.
        share: (k,), the estimated fractions p_l of mismatches.

    The attributes are buffers, so they are part of the checkpoint.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> mismatch = Mismatch(3, 100)
        >>> views = torch.randn(1, 100, 8).repeat(3, 1, 1)
        >>> views[2, 5] = -views[2, 5]  # view 2 of row 5 shows another object
        >>> for _ in range(5):
        ...     mismatch.observe(views, torch.arange(100))
        >>> reliability = mismatch.log_odds().sigmoid()
        >>> int(reliability[2].argmin()), bool(reliability[2, 5] < 0.5), bool(reliability[0, 5] > 0.5)
        (5, True, True)
    """

    evidence: Tensor
    visits: Tensor
    moments: Tensor
    steps: Tensor
    share: Tensor

    def __init__(self, k: int, rows: int) -> None:
        super().__init__()
        self.register_buffer("evidence", torch.zeros(k, k, rows))
        self.register_buffer("visits", torch.zeros(k, k, rows, dtype=torch.int32))
        self.register_buffer("moments", torch.zeros(3, k, k))
        self.register_buffer("steps", torch.zeros(k, k, dtype=torch.int64))
        self.register_buffer("share", torch.full((k,), 0.02))

    @torch.no_grad()
    @outside_autocast
    def observe(
        self, embeddings: Tensor, index: Tensor, *, views: list[int] | None = None, mask: Tensor | None = None
    ) -> None:
        """Update the evidence with the embeddings (k, n, d) of a batch.

        Every process uses the rows of all processes, so that their states agree.

        Args:
            embeddings: (k, n, d), the embeddings of all views, or of the given `views` only.
            index: (n,), the row numbers.
            views: the indices of the embedded views; by default all.
            mask: bool (k, n), True where an entry is present.
        """
        # As integers, because float32 rounds large row numbers and MPS has no float64.
        rows, _, _ = gather_views(index.to(embeddings.device, torch.int64)[None, :, None])
        embeddings, mask, _ = gather_views(embeddings.float(), mask)
        row = rows[0, :, 0]
        k, n, _ = embeddings.shape
        chosen = torch.tensor(list(range(k)) if views is None else views, device=row.device)
        pairs = chosen[:, None], chosen[None, :]
        entries = (*(part.unsqueeze(-1) for part in pairs), row)
        present = torch.ones(k, n, dtype=torch.bool, device=row.device) if mask is None else mask

        scores = _pair_scores(embeddings, present)
        odds = self.log_odds(row)
        odds, excluded = odds[chosen], self.excluded(row, odds)[chosen]
        self._update_moments(scores, present, odds.sigmoid(), pairs)
        mu, nu, var = (moment[pairs].unsqueeze(-1) for moment in self.moments)
        var = var.clamp(min=1e-3)
        matching = scores.diagonal(dim1=2, dim2=3)
        evidence = (mu - nu).clamp(min=0) / var * (matching - (mu + nu) / 2)
        evidence = evidence.clamp(-MAX_EVIDENCE, MAX_EVIDENCE)

        separated = (mu > nu) & ((mu - nu).square() / var > SEPARATION) & (chosen[:, None] != chosen).unsqueeze(-1)
        counts = separated & present[:, None] & present[None]
        visits = self.visits[entries] + counts
        in_loss = ~(excluded[:, None] | excluded[None])
        newest = 1 / visits.clamp(min=1)
        weight = torch.where(in_loss, newest * (visits <= EVALUATED_VISITS), newest.clamp(min=VISIT_WEIGHT)) * counts
        self.visits[entries] = visits
        self.evidence[entries] += weight * (evidence - self.evidence[entries])
        unreliable = 1 - self.log_odds(row).sigmoid().mean(1)
        self.share.lerp_(unreliable, STEP_WEIGHT).clamp_(MIN_MISMATCH_FRACTION, MAX_MISMATCH_FRACTION)

    def _update_moments(self, scores: Tensor, present: Tensor, reliable: Tensor, pairs: tuple[Tensor, Tensor]) -> None:
        """Update the running moments; a matching pair is weighted by the reliability of both entries."""
        same = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
        both_present = present[:, None, :, None] & present[None, :, None, :]
        weights = torch.where(same, (reliable[:, None] * reliable[None]).diag_embed(), 1.0) * both_present
        matching, different = weights * same, weights * ~same
        mu, nu = _mean(scores, matching), _mean(scores, different)
        deviation = (scores - torch.where(same, mu[..., None, None], nu[..., None, None])).square()
        var = (_mean(deviation, matching) + _mean(deviation, different)) / 2
        self.steps[pairs] += 1
        weight = (1 / self.steps[pairs]).clamp(min=STEP_WEIGHT)
        for moment, value in zip(self.moments, (mu, nu, var)):
            moment[pairs] += weight * (value - moment[pairs])

    def log_odds(self, rows: Tensor | None = None) -> Tensor:
        """Return log(r / (1 - r)) of the views of these rows, (k, n); by default of all rows."""
        evidence = self.evidence if rows is None else self.evidence[:, :, rows]
        prior = self._prior()
        odds = prior.expand(-1, evidence.shape[-1])
        for _ in range(ROUNDS):
            # Damped iteration: two contradicting views would otherwise oscillate.
            odds = (odds + prior + torch.einsum("lmi,mi->li", evidence, odds.sigmoid())) / 2
        return odds

    def _prior(self) -> Tensor:
        """Return the log odds of an entry without evidence, (k, 1)."""
        return torch.log((1 - self.share) / self.share).unsqueeze(-1)

    def excluded(self, rows: Tensor | None = None, odds: Tensor | None = None) -> Tensor:
        """Return bool (k, n): the evaluated entries of these rows (by default all) that are not reliable yet."""
        odds = self.log_odds(rows) if odds is None else odds
        evaluated = (self.visits if rows is None else self.visits[:, :, rows]).gt(0).any(1)
        return evaluated & (odds < (self._prior() + PROVEN).clamp(max=TRUSTED))

    @torch.no_grad()
    @outside_autocast
    def trusted(self, rows: Tensor, mask: Tensor | None) -> Tensor | None:
        """Return the mask (k, n) of a batch without the excluded entries.

        Each row keeps the most reliable of its views. The result is None if there is no mask and no entry is excluded,
        and `mask` itself if no row would keep two views.
        """
        rows = rows.to(self.evidence.device)
        odds = self.log_odds(rows)
        kept = ~self.excluded(rows, odds)
        if mask is not None:
            odds, kept = odds.masked_fill(~mask, -math.inf), kept & mask
        kept = kept.scatter(0, odds.argmax(0, keepdim=True), True)
        if not bool((kept.sum(0) >= 2).any()):
            return mask
        return None if mask is None and bool(kept.all()) else kept


def _pair_scores(embeddings: Tensor, present: Tensor) -> Tensor:
    """Return the scores u[l, m, i, j] of embeddings (k, n, d); the softmax omits points where `present` is False."""
    unit = torch.nn.functional.normalize(torch.where(present.unsqueeze(-1), embeddings, 0.0), dim=-1)
    similar = torch.einsum("lid,mjd->lmij", unit, unit) / TEMPERATURE
    candidates = torch.where(present[None, :, None, :], similar, torch.finfo(similar.dtype).min / 2)
    number = present.sum(-1).clamp(min=1).log()[None, :, None, None]
    one_way = similar - candidates.logsumexp(-1, keepdim=True) + number
    return (one_way + one_way.permute(1, 0, 3, 2)) / 2


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted mean over the last two axes, or 0 if all weights are 0; values of weight 0 may be NaN."""
    return torch.where(weights > 0, values * weights, 0.0).sum((-2, -1)) / weights.sum((-2, -1)).clamp(min=1e-6)
