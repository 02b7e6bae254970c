"""Single-cell files: the modalities of an .h5mu file, or the matrices of an .h5ad file, as views of cells.

Matrices are opened in backed mode, and sparse ones stay sparse: only the rows of a batch are read and converted to
dense. A cell that a modality does not have is a missing entry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from m3g import _checks

SUFFIXES = (".h5mu", ".h5ad")
MOST_VALUES = 2**20  # rows converted to dense at a time


def open_omics(file: Path) -> tuple[dict[str, Any], list[str], int, Any]:
    """Return the columns of a file with pyarrow types, its views, the number of cells, and a reader in batches.

    Views are the modalities of an .h5mu file, or `X` and the entries of `obsm` of an .h5ad file; the columns of `obs`
    are labels, groups or splits.
    """
    arrow = _checks.extra("pyarrow", "train")
    matrices, places, obs = _read(file)
    number = len(obs)
    types = {name: arrow.list_(arrow.float32(), matrix.shape[1]) for name, matrix in matrices.items()}
    for name in obs.columns:
        if str(name) not in types:
            types[str(name)] = arrow.array(obs[name].astype(object).where(obs[name].notna(), None).tolist()).type
    step = max(1, min(1024, MOST_VALUES // max(sum(matrix.shape[1] for matrix in matrices.values()), 1)))

    def batches(columns: list[str]) -> Iterator[Any]:
        for start in range(0, number, step):
            rows = np.arange(start, min(number, start + step))
            arrays = []
            for name in columns:
                if name in matrices:
                    arrays.append(_vectors(arrow, matrices[name], places[name][rows], types[name]))
                else:
                    part = obs[name].iloc[rows].astype(object)
                    arrays.append(arrow.array(part.where(part.notna(), None).tolist(), type=types[name]))
            yield arrow.RecordBatch.from_arrays(arrays, names=columns)

    return types, list(matrices), number, batches


def _read(file: Path) -> tuple[dict[str, Any], dict[str, np.ndarray], Any]:
    """Return the matrices by name with the row of every cell in each (-1 if it has none), and the table `obs`."""
    package = _checks.extra("mudata" if file.suffix == ".h5mu" else "anndata", "omics")
    try:
        found = _open(package, file, backed="r")
    except (OSError, KeyError, ValueError, TypeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(f"table must be a file that can be read, got {str(file)!r} ({reason}).") from error
    if file.suffix == ".h5mu":
        matrices = {name: part.X for name, part in found.mod.items()}
        places = {name: np.asarray(found.obsmap[name]).astype(int).ravel() - 1 for name in matrices}
    else:
        matrices = {"X": found.X, **{name: part for name, part in found.obsm.items() if np.ndim(part) == 2}}
        matrices = {name: part for name, part in matrices.items() if part is not None}
        places = {name: np.arange(found.n_obs) for name in matrices}
    if not matrices:
        raise ValueError(f"table must be a file with matrices, got none in {str(file)!r}.")
    return matrices, places, found.obs


def _vectors(arrow: Any, matrix: Any, places: np.ndarray, kind: Any) -> Any:
    """Return rows of a matrix as vectors, null for row -1."""
    there = places >= 0
    dense = np.zeros((len(places), matrix.shape[1]), dtype=np.float32)
    if there.any():
        rows, back = np.unique(places[there], return_inverse=True)  # files are read in increasing order
        part = matrix[rows]
        dense[there] = np.asarray(part.toarray() if hasattr(part, "toarray") else part, dtype=np.float32)[back]
    values = arrow.array(dense.reshape(-1))
    return arrow.FixedSizeListArray.from_arrays(values, matrix.shape[1], mask=arrow.array(~there))


def write_embeddings(source: Path, out: Path, mean: np.ndarray, index: np.ndarray) -> None:
    """Copy a file with the embeddings of its cells as `obsm["X_m3g"]`; cells without one are NaN."""
    package = _checks.extra("mudata" if source.suffix == ".h5mu" else "anndata", "omics")
    found = _open(package, source)
    whole = np.full((found.n_obs, mean.shape[1]), np.nan, dtype=np.float32)
    whole[index] = mean
    found.obsm["X_m3g"] = whole
    with _obs_as_stored(package):
        found.write(out)


def _open(package: Any, file: Path, **options: str) -> Any:
    with _obs_as_stored(package):
        return (package.read_h5mu if file.suffix == ".h5mu" else package.read_h5ad)(file, **options)


def _obs_as_stored(package: Any) -> contextlib.AbstractContextManager[Any]:
    """Keep `obs` unchanged: mudata 0.3 copies columns of the modalities into it, with a warning."""
    if hasattr(package, "MuData"):
        return package.set_options(pull_on_update=False)
    return contextlib.nullcontext()
