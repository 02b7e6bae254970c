"""Initialisation of linear encoders with linear CCA of the training rows."""

from __future__ import annotations

from collections import Counter

from m3g.data import ViewsData
from m3g.evaluation.linear_cca import MOST_ROWS, LinearCCA
from m3g.nets import Linear, MultiViewNet

ROWS_BESIDE_FILES = 2000  # if other views are images, sounds or text, which are read too


def fitted_views(net: MultiViewNet) -> list[int]:
    """Return the views with a separate linear encoder; empty if there are fewer than two."""
    uses = Counter(id(encoder) for encoder in net.encoders)
    found = [l for l, part in enumerate(net.encoders) if isinstance(part, Linear) and uses[id(part)] == 1]
    return found if len(found) > 1 else []


def start_at_linear_cca(net: MultiViewNet, data: ViewsData) -> str:
    """Set the linear maps of the network to linear CCA of the training rows; return a line for the log.

    The result is part of the weights, so a resumed run reads it from the checkpoint.
    """
    chosen = fitted_views(net)
    if not chosen:
        return ""
    most = MOST_ROWS if len(chosen) == data.k else ROWS_BESIDE_FILES
    views, mask, _ = data.arrays("train", most=most)
    divisors = [None if part is None else part[1] for part in data.scaling or [None] * data.k]
    encoders = [net.encoders[l] for l in chosen]
    try:
        found = LinearCCA(
            [views[l] for l in chosen],
            None if mask is None else mask[chosen],
            size=int(encoders[0].out_features),  # type: ignore[arg-type]
            divisors=[divisors[l] for l in chosen],
        )
    except ValueError as error:
        return f"linear encoders start at random, because linear CCA cannot be fitted: {error}"
    for encoder, mean, directions in zip(encoders, found.means, found.maps):
        assert isinstance(encoder, Linear)
        encoder.start_at(mean, directions)
    scale = "standardised features" if found.standardized else "features in their original scale"
    return f"encoders start at linear CCA of the training rows (ridge {found.ridge:g}, {scale})"
