"""Losses by name, for the command line and the experiments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from m3g._checks import meant, one_of
from m3g._options import typed
from m3g.losses.aggregate import BYOLAverage, BYOLPairwise, InfoNCEAverage, InfoNCEPairwise
from m3g.losses.barlow_twins import BarlowTwins
from m3g.losses.base import ViewLoss
from m3g.losses.gram import Gram
from m3g.losses.kl import KLLoss
from m3g.losses.lejepa import LeJEPA
from m3g.losses.m3g import M3GLoss
from m3g.losses.m3g_pairs import M3GPairs
from m3g.losses.m3g_rest import M3GRest
from m3g.losses.mcca import MCCA
from m3g.losses.mmcr import MMCR
from m3g.losses.mv_dhel import MVDHEL
from m3g.losses.mv_infonce import MVInfoNCE
from m3g.losses.pmrl import PMRL
from m3g.losses.polyview import PolyView
from m3g.losses.symile import Symile
from m3g.losses.triangle import Triangle
from m3g.losses.vicreg import VICReg


class LossEntry(NamedTuple):
    """A loss of the registry: what builds it, what it does, what it costs in n, k and d."""

    factory: Callable[..., ViewLoss]
    summary: str
    cost: str


_LOSSES = {
    "m3g": LossEntry(M3GLoss, "gap between the true matching of k views and the best polymatching", "n^k"),
    "m3g-pairs": LossEntry(
        M3GPairs, "m3g two views at a time: all pairs, and each view with the average of the rest", "k² n² d"
    ),
    "m3g-rest": LossEntry(
        M3GRest, "m3g of each view with the product of the rest: dependence among all views", "k n² d"
    ),
    "kl": LossEntry(KLLoss, "divergence of the true matching from the best: m3g / epsilon, or that of pairs", "n^k"),
    "infonce-pwe": LossEntry(InfoNCEPairwise, "InfoNCE, mean over the pairs of views", "k² n² d"),
    "infonce-ave": LossEntry(InfoNCEAverage, "InfoNCE, each view against the average of the rest", "k n² d"),
    "byol-pwe": LossEntry(BYOLPairwise, "BYOL, mean over the pairs of views; needs a teacher", "k² n d"),
    "byol-ave": LossEntry(BYOLAverage, "BYOL, each view against the average of the rest; needs a teacher", "k n d"),
    "symile": LossEntry(
        Symile, "multilinear inner product of whole tuples", "k n² d, or n^k d with negatives=n_squared"
    ),
    "gram": LossEntry(Gram, "volume spanned by an anchor view and the rest", "n² k³ + k n² d"),
    "triangle": LossEntry(Triangle, "area of the triangle of three views (k = 3)", "n² d"),
    "polyview": LossEntry(PolyView, "every view predicts every other, negatives in all views", "k² n² d"),
    "mv-infonce": LossEntry(MVInfoNCE, "all pairs of views of an object in one InfoNCE term", "k² n² d"),
    "mv-dhel": LossEntry(MVDHEL, "aligns across views, spreads within each view", "k n² d"),
    "mmcr": LossEntry(MMCR, "nuclear norms of centroids and of each object's views", "n d min(n, d) + n k² d"),
    "vicreg": LossEntry(VICReg, "variance, invariance and covariance, no negatives", "k n d²"),
    "pmrl": LossEntry(PMRL, "singular values of each object's views, contrast of leading directions", "n k² d + n² d"),
    "lejepa": LossEntry(LeJEPA, "views meet at their mean, points spread like a normal; A directions", "k n A d"),
    "barlow-twins": LossEntry(BarlowTwins, "correlations of features near the identity, over pairs", "k² n d²"),
    "mcca": LossEntry(MCCA, "canonical correlations of k views (deep MCCA, GCCA)", "k² n d² + k³ d³"),
}


def register(name: str, factory: Callable[..., ViewLoss], *, summary: str = "", cost: str = "") -> None:
    """Give a loss of one's own a name, for this process: `build` and all that calls it then know it.

    >>> register("infonce-again", InfoNCEPairwise)
    >>> build("infonce-again", temperature=0.2).pair_loss.temperature()
    0.2
    >>> _ = _LOSSES.pop("infonce-again")
    """
    if name in _LOSSES:
        raise ValueError(f"name must be one that no loss has yet, got {name!r}.")
    _LOSSES[name] = LossEntry(factory, summary, cost)


def available() -> list[str]:
    """The names that `build` takes.

    >>> "infonce-pwe" in available()
    True
    """
    return list(_LOSSES)


def describe() -> list[tuple[str, str, str]]:
    """One row per loss: its name, what it does in one line, its cost in n, k and d."""
    return [(name, entry.summary, entry.cost) for name, entry in _LOSSES.items()]


def options(name: str) -> list[str]:
    """The names of the options that `build(name, ...)` takes.

    >>> options("mmcr")
    ['compression', 'normalize', 'gather']
    """
    one_of("name", name, _LOSSES)
    return list(inspect.signature(_LOSSES[name].factory).parameters)


def build(name: str, **settings: Any) -> ViewLoss:
    """The loss module of that name.

    >>> build("infonce-pwe", temperature=0.2).pair_loss.temperature()
    0.2
    """
    check_options(name, settings)
    return _LOSSES[name].factory(**settings)


def check_options(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse options that the loss of that name does not have, or of another type."""
    known = options(name)
    for setting in settings:
        if setting not in known:
            raise ValueError(
                f"option of the loss {name!r} must be one of {', '.join(known)}, got {setting!r}{meant(setting, known)}"
            )
    typed(_LOSSES[name].factory, settings)
