"""Losses by name, for the command line and the experiments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from m3g._catalogue import LOSSES, Entry, find
from m3g._checks import among
from m3g._options import typed
from m3g.losses.base import ViewLoss


def register(name: str, factory: Callable[..., ViewLoss], *, summary: str = "", cost: str = "") -> None:
    """Give a loss of one's own a name, for this process: `build` and all that calls it then know it.

    >>> from m3g.losses import InfoNCEPairwise
    >>> register("infonce-again", InfoNCEPairwise)
    >>> build("infonce-again", temperature=0.2).pair_loss.temperature()
    0.2
    >>> _ = LOSSES.pop("infonce-again")
    """
    if name in LOSSES:
        raise ValueError(f"name must be one that no loss has yet, got {name!r}.")
    LOSSES[name] = Entry(factory, summary, cost)


def available() -> list[str]:
    """The names that `build` takes.

    >>> "infonce-pwe" in available()
    True
    """
    return list(LOSSES)


def describe() -> list[tuple[str, str, str]]:
    """One row per loss: its name, what it does in one line, its cost in n, k and d."""
    return [(name, entry.summary, entry.cost) for name, entry in LOSSES.items()]


def options(name: str) -> list[str]:
    """The names of the options that `build(name, ...)` takes.

    >>> options("mmcr")
    ['compression', 'normalize', 'gather']
    """
    return find("name", name, LOSSES).options()


def build(name: str, **settings: Any) -> ViewLoss:
    """The loss module of that name.

    >>> build("infonce-pwe", temperature=0.2).pair_loss.temperature()
    0.2
    """
    among(f"options of the loss {name!r}", settings, options(name))
    loss: Callable[..., ViewLoss] = LOSSES[name].load()
    typed(loss, settings)
    return loss(**settings)
