"""Data modules: k views of the same objects in splits and batches, in an order determined by a seed.

Names are imported on first use, so that a misspelt name on the command line is reported before Lightning is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from m3g._lazy import lazy_names

if TYPE_CHECKING:
    from m3g.data.base import ViewsData, available, find
    from m3g.data.batch import Batch
    from m3g.data.images.arrays import ImageArrays
    from m3g.data.images.domain_arrays import DomainArrays
    from m3g.data.images.domains import Domains
    from m3g.data.images.folders import ImageFolders
    from m3g.data.sampling import ClassAlignedSampler, EpochSampler
    from m3g.data.signals.windows import Signals
    from m3g.data.tables.arrays import Arrays
    from m3g.data.tables.multiple_features import MultipleFeatures
    from m3g.data.tables.objects import Objects

__all__ = [
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
    "find",
]

__getattr__, __dir__ = lazy_names(__name__)
