"""Data modules: k views of the same points, split, batched, in an order that a seed fixes."""

from m3g.data.arrays import Arrays, MultipleFeatures
from m3g.data.base import Batch, ViewsData
from m3g.data.domain_arrays import DomainArrays
from m3g.data.domains import Domains
from m3g.data.image_arrays import ImageArrays
from m3g.data.images import ImageFolders
from m3g.data.sampling import ClassAlignedSampler, EpochSampler
from m3g.data.signals import Signals

MODULES: dict[str, type[ViewsData]] = {
    cls.__name__: cls for cls in (MultipleFeatures, Arrays, ImageFolders, ImageArrays, Domains, DomainArrays, Signals)
}


def available() -> list[str]:
    """The names of the data modules.

    Example:
        >>> "Arrays" in available()
        True
    """
    return list(MODULES)


def describe() -> list[tuple[str, str]]:
    """One row (name, summary) per data module.

    Example:
        >>> describe()[1]
        ('Arrays', 'Your own k files, one per view: row i of every file is the same object.')
    """
    return [(name, (cls.__doc__ or "").strip().splitlines()[0]) for name, cls in MODULES.items()]


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
    "Signals",
    "ViewsData",
    "available",
    "describe",
]
