"""Approximate nearest-neighbour index: an inverted file (IVF) of faiss, stored in the user's cache."""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from m3g import _checks

SAMPLED, ROUNDS = 64, 10  # maximum number of points per cell used by k-means, and number of its iterations
PROBED, MIN_PROBED = 0.1, 32  # cells nearest to the query that are searched: the fraction of all cells, and the minimum


def shortlist(points: Tensor, queries: Tensor, *, size: int) -> Tensor:
    """Return the indices (q, size) of points with approximately the largest inner products with each query.

    Points have shape (n, d), queries (q, d). The indices of a query with fewer results are padded with -1.

    The index is built once and stored below `$XDG_CACHE_HOME/m3g` (by default `~/.cache/m3g`), in a file named after a
    digest of the points. It is not stored in the run folder, which may be shared, because faiss does not validate the
    files that it reads.
    """
    faiss = _faiss()
    numbers = points.detach().cpu().float().contiguous().numpy()
    cells = max(1, int(len(numbers) ** 0.5))
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "m3g" / "indices"
    file = folder / f"{hashlib.sha256(numbers.tobytes()).hexdigest()}-{numbers.shape[1]}.faiss"
    if file.is_file():
        index = faiss.read_index(str(file))
    else:
        index = faiss.index_factory(numbers.shape[1], f"IVF{cells},Flat", faiss.METRIC_INNER_PRODUCT)
        index.cp.max_points_per_centroid, index.cp.niter = SAMPLED, ROUNDS
        index.cp.min_points_per_centroid = 1  # otherwise, faiss warns if there are fewer than 39 points per cell
        index.train(numbers)
        index.add(numbers)
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        os.close(descriptor)
        faiss.write_index(index, temporary)
        os.replace(temporary, file)
    index.nprobe = min(cells, max(MIN_PROBED, round(PROBED * cells)))
    _, indices = index.search(queries.detach().cpu().float().contiguous().numpy(), size)
    return torch.from_numpy(indices)


def _faiss() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the SWIG wrapper
        faiss: ModuleType = _checks.extra("faiss", "search")
        return faiss
