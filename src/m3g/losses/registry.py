"""Registry of losses by name, for the command line and the experiments."""

from __future__ import annotations

from collections.abc import Callable

from m3g._catalogue import LOSSES, Entry, find
from m3g._checks import among
from m3g._options import typed
from m3g.losses.base import ViewLoss


def register(name: str, factory: Callable[..., ViewLoss], *, summary: str = "", cost: str = "") -> None:
    """Register a custom loss under a name, for `build` and the commands in this process.

    Args:
        name: a name that is not in use.
        factory: class or function that returns the loss module, and whose arguments are the options of the loss.
        summary: one-line description.
        cost: complexity in n, k and d.

    Example:
        >>> from m3g.losses import InfoNCEPairwise
        >>> register("infonce-again", InfoNCEPairwise)
        >>> build("infonce-again", temperature=0.2).pair_loss.temperature()
        0.2
        >>> _ = LOSSES.pop("infonce-again")
    """
    if name in LOSSES:
        raise ValueError(f"name must not be the name of an existing loss, got {name!r}.")
    LOSSES[name] = Entry(factory, summary, cost)


def available() -> list[str]:
    """Return the names that `build` accepts.

    Example:
        >>> "infonce-pwe" in available()
        True
    """
    return list(LOSSES)


def describe() -> list[tuple[str, str, str]]:
    """Return one row per loss: its name, a one-line summary, and its complexity in n, k and d."""
    return [(name, entry.summary, entry.cost) for name, entry in LOSSES.items()]


def options(name: str) -> list[str]:
    """Return the names of the options that `build(name, ...)` accepts.

    Example:
        >>> options("mmcr")
        ['compression', 'normalize', 'gather']
    """
    return find("name", name, LOSSES).options()


def build(name: str, **settings: object) -> ViewLoss:
    """Build the loss module of the given name.

    Args:
        name: one of `available()`.
        settings: options of the loss, with names from `options(name)`.

    Raises:
        ValueError: the name or an option is unknown, or the type of an option is wrong.

    Example:
        >>> build("infonce-pwe", temperature=0.2).pair_loss.temperature()
        0.2
    """
    among(f"options of the loss {name!r}", settings, options(name))
    loss: Callable[..., ViewLoss] = LOSSES[name].load()
    typed(loss, settings)
    return loss(**settings)
