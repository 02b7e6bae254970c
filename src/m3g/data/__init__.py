"""Data modules: k views of the same points, split, batched, in an order that a seed fixes.

Names are imported when first used: a wrong name on the command line is told before Lightning is loaded.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3g import _checks

if TYPE_CHECKING:
    from m3g.data.base import Batch, ViewsData
    from m3g.data.images.arrays import ImageArrays
    from m3g.data.images.domain_arrays import DomainArrays
    from m3g.data.images.domains import Domains
    from m3g.data.images.folders import ImageFolders
    from m3g.data.sampling import ClassAlignedSampler, EpochSampler
    from m3g.data.signals.windows import Signals
    from m3g.data.tables.arrays import Arrays
    from m3g.data.tables.module import Objects
    from m3g.data.tables.multiple_features import MultipleFeatures

# what `--data` takes, and the class behind each name
MODULES = {
    "multiple-features": "MultipleFeatures",
    "arrays": "Arrays",
    "objects": "Objects",
    "images": "ImageFolders",
    "image-arrays": "ImageArrays",
    "domains": "Domains",
    "domain-arrays": "DomainArrays",
    "signals": "Signals",
}

KINDS = ("image", "audio", "text", "vector", "table")  # of views in a table of objects

_WHERE = {
    "Arrays": "tables.arrays",
    "Batch": "base",
    "ClassAlignedSampler": "sampling",
    "DomainArrays": "images.domain_arrays",
    "Domains": "images.domains",
    "EpochSampler": "sampling",
    "ImageArrays": "images.arrays",
    "ImageFolders": "images.folders",
    "MultipleFeatures": "tables.multiple_features",
    "Objects": "tables.module",
    "Signals": "signals.windows",
    "ViewsData": "base",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)


def available() -> list[str]:
    """The names of the data modules.

    Example:
        >>> "arrays" in available()
        True
    """
    return list(MODULES)


def find(name: str) -> type[ViewsData]:
    """The data module of that name.

    Example:
        >>> find("arrays").__name__
        'Arrays'
    """
    return __getattr__(MODULES[_checks.one_of("data", name, MODULES)])


def options(name: str) -> list[str]:
    """The options of the data module of that name, as its source has them: to import it would load Lightning.

    Example:
        >>> options("arrays")[:3]
        ['paths', 'labels', 'mask']
    """
    kind = MODULES[_checks.one_of("data", name, MODULES)]
    source = Path(__file__).parent.joinpath(*_WHERE[kind].split(".")).with_suffix(".py")
    for part in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(part, ast.ClassDef) and part.name == kind:
            made = next(one for one in part.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
            return [argument.arg for argument in (*made.args.args[1:], *made.args.kwonlyargs)]
    raise AssertionError(f"{source} has no class {kind}")


def describe() -> list[tuple[str, str]]:
    """One row (name, summary) per data module.

    Example:
        >>> describe()[1]
        ('arrays', 'Your own k files, one per view: row i of every file is the same object.')
    """
    return [(name, (find(name).__doc__ or "").strip().splitlines()[0]) for name in MODULES]


__all__ = [
    "MODULES",
    "Arrays",
    "Batch",
    "ClassAlignedSampler",
    "DomainArrays",
    "Domains",
    "EpochSampler",
    "ImageArrays",
    "ImageFolders",
    "MultipleFeatures",
    "Objects",
    "Signals",
    "ViewsData",
    "available",
    "describe",
    "find",
    "options",
]
