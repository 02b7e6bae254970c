"""Registry of data modules by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from m3g import _catalogue

if TYPE_CHECKING:
    from m3g.data.base import ViewsData


def available() -> list[str]:
    """Return the names of the data modules.

    Example:
        >>> "arrays" in available()
        True
    """
    return list(_catalogue.DATA)


def find(name: str) -> type[ViewsData]:
    """Return the data module of the given name.

    Example:
        >>> find("arrays").__name__
        'Arrays'
    """
    kind: type[ViewsData] = _catalogue.find("data", name, _catalogue.DATA).load()
    return kind


def options(name: str) -> list[str]:
    """Return the options of a data module without importing it.

    Example:
        >>> options("arrays")[:3]
        ['paths', 'labels', 'mask']
    """
    return _catalogue.find("data", name, _catalogue.DATA).options()


def describe() -> list[tuple[str, str]]:
    """Return one row (name, summary) per data module.

    Example:
        >>> describe()[1]
        ('arrays', 'Your own k files, one per view: row i of every file is the same object.')
    """
    return [(name, entry.headline()) for name, entry in _catalogue.DATA.items()]
