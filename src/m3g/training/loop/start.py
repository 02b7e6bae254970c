"""Initialisation of linear encoders with linear CCA of the training rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from m3g.data.storage.rows import IN_MEMORY
from m3g.evaluation.linear_cca import MAX_ROWS, LinearCCA
from m3g.nets import Linear, MultiViewNet

if TYPE_CHECKING:  # m3g.data imports Lightning, which the scikit-learn estimators do not require
    from m3g.data import ViewsData

ROWS_BESIDE_FILES = 2000  # maximum number of fitted rows if other views (images, sounds, text) are read with them
MAX_VALUES = 12_000_000  # maximum number of values in the fitted rows
MAX_VALUES_FROM_FILES = 4_000_000  # the same if the training rows of the views exceed `IN_MEMORY`


class Start(NamedTuple):
    """Whether the linear maps of a network start at linear CCA, and a line for the log."""

    at_linear_cca: bool = False
    line: str = ""


def fitted_views(net: MultiViewNet) -> list[int]:
    """Return the views with a separate linear encoder; empty if there are fewer than two."""
    uses = Counter(id(encoder) for encoder in net.encoders)
    views = [l for l, part in enumerate(net.encoders) if isinstance(part, Linear) and uses[id(part)] == 1]
    return views if len(views) > 1 else []


def num_fitted_rows(data: ViewsData, views: Sequence[int]) -> int:
    """Return the maximum number of training rows on which linear CCA of some views is fitted.

    The memory is bounded by two limits. There are at most 10 000 rows, or 2000 if other views are read with them. The
    rows have at most 12 million numbers, or 4 million if all training rows of these views exceed 128 MiB, the limit
    beyond which views stay in files. The result is at least 2.
    """
    columns = sum(math.prod(data.view_shapes[l]) for l in views)
    in_files = 4 * columns * data.num_rows("train") > IN_MEMORY
    max_rows = (MAX_VALUES_FROM_FILES if in_files else MAX_VALUES) // columns
    return max(2, min(max_rows, MAX_ROWS if len(views) == data.k else ROWS_BESIDE_FILES))


def fit_linear_cca(data: ViewsData, views: Sequence[int], *, size: int) -> LinearCCA:
    """Return linear CCA of some views, fitted on at most `num_fitted_rows` evenly spaced training rows."""
    n = min(num_fitted_rows(data, views), data.num_rows("train"))
    # Filled batch by batch, because joining the batches would require twice the memory.
    rows = [torch.empty(n, *data.view_shapes[l]) for l in views]
    masks: list[torch.Tensor] = []
    start = 0
    for batch in data.loader("train", most=n):
        end = start + len(batch["index"])
        for part, l in zip(rows, views):
            part[start:end] = batch["views"][l]
        if batch["mask"] is not None:
            masks.append(batch["mask"][list(views)])
        start = end
    scaling = data.scaling or [None] * data.k
    return LinearCCA(
        rows,
        torch.cat(masks, dim=1) if masks else None,
        size=size,
        divisors=[None if part is None else part[1] for part in (scaling[l] for l in views)],
    )


def start_at_linear_cca(net: MultiViewNet, data: ViewsData) -> Start:
    """Set the linear maps of the network to linear CCA of the training rows (`fit_linear_cca`), if possible.

    A resumed run reads them from the checkpoint instead, because they are part of the weights. If other views have no
    linear map and linear CCA has fewer components than the embedding has features, the linear maps start from random
    weights.
    """
    chosen = fitted_views(net)
    if not chosen:
        return Start()
    size = int(net.encoders[chosen[0]].out_features)  # type: ignore[arg-type]
    widths = sorted(math.prod(data.view_shapes[l]) for l in chosen)
    if len(chosen) < data.k and sum(widths[:-1]) < size:
        # The remaining features of the linear maps would be zero, although views without a linear map use them.
        return Start()
    try:
        cca = fit_linear_cca(data, chosen, size=size)
    except ValueError as error:
        return Start(line=f"linear encoders start from random weights, because linear CCA cannot be fitted: {error}")
    set_linear_maps(net, chosen, cca)
    scale = "standardised features" if cca.standardized else "features in their original scale"
    return Start(True, f"encoders start at linear CCA of the training rows (ridge {cca.ridge:g}, {scale})")


def set_linear_maps(net: MultiViewNet, views: Sequence[int], cca: LinearCCA) -> None:
    """Set the linear maps of some views to fitted ones."""
    for l, mean, directions in zip(views, cca.means, cca.maps):
        encoder = net.encoders[l]
        assert isinstance(encoder, Linear)
        encoder.start_at(mean, directions)
