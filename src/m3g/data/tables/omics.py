"""Single-cell files: the views are the modalities of an .h5mu file or the matrices of an .h5ad file.

Rows are read in backed mode: `X` stays in the file, whereas anndata loads `obsm` into memory. Sparse matrices stay
sparse, and only a batch of their rows is converted to dense at a time. A cell without a row in a modality is a missing
entry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from m3g import _checks

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from anndata import AnnData
    from mudata import MuData
    from scipy.sparse import spmatrix

SUFFIXES = (".h5mu", ".h5ad")
MAX_VALUES = 2**20  # values converted to dense at a time


def open_omics(
    file: Path,
) -> tuple[dict[str, pa.DataType], list[str], int, Callable[[list[str]], Iterator[pa.RecordBatch]]]:
    """Return the pyarrow type of every column, the names of the views, the number of cells, and a batch function.

    The batch function yields the record batches of the columns that are passed to it. The views are the modalities of
    an .h5mu file, or `X` and the two-dimensional entries of `obsm` of an .h5ad file. The columns of `obs`
    can be labels, groups or splits.
    """
    arrow = _checks.extra("pyarrow", "train")
    matrices, cell_rows, obs = _read(file)
    number = len(obs)
    types = {name: arrow.list_(arrow.float32(), matrix.shape[1]) for name, matrix in matrices.items()}
    for name in obs.columns:
        if str(name) not in types:
            types[str(name)] = arrow.array(obs[name].astype(object).where(obs[name].notna(), None).tolist()).type
    step = max(1, min(1024, MAX_VALUES // max(sum(matrix.shape[1] for matrix in matrices.values()), 1)))

    def batches(columns: list[str]) -> Iterator[pa.RecordBatch]:
        for start in range(0, number, step):
            rows = np.arange(start, min(number, start + step))
            arrays = []
            for name in columns:
                if name in matrices:
                    arrays.append(_vectors(matrices[name], cell_rows[name][rows]))
                else:
                    part = obs[name].iloc[rows].astype(object)
                    arrays.append(arrow.array(part.where(part.notna(), None).tolist(), type=types[name]))
            yield arrow.RecordBatch.from_arrays(arrays, names=columns)

    return types, list(matrices), number, batches


def _read(file: Path) -> tuple[dict[str, np.ndarray | spmatrix], dict[str, np.ndarray], pd.DataFrame]:
    """Return the matrices by name, the row of every cell in each matrix (-1 if missing), and the table `obs`."""
    try:
        data = _open(file, backed="r")
    except (OSError, KeyError, ValueError, TypeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(f"table must be a file that can be read, got {str(file)!r} ({reason}).") from error
    if file.suffix == ".h5mu":
        matrices = {name: _matrix(part) for name, part in data.mod.items()}
        matrices = {name: part for name, part in matrices.items() if part is not None}
        cell_rows = {name: np.asarray(data.obsmap[name]).astype(int).ravel() - 1 for name in matrices}
    else:
        matrices = {"X": _matrix(data), **{name: part for name, part in data.obsm.items() if np.ndim(part) == 2}}
        # `obsm` may contain data frames
        matrices = {name: np.asarray(part) if hasattr(part, "iloc") else part for name, part in matrices.items()}
        matrices = {name: part for name, part in matrices.items() if part is not None}
        cell_rows = {name: np.arange(data.n_obs) for name in matrices}
    if not matrices:
        raise ValueError(f"table must be a file with matrices, got none in {str(file)!r}.")
    return matrices, cell_rows, data.obs


def _matrix(data: AnnData) -> np.ndarray | spmatrix | None:
    """Return the matrix `X`; None if the file has only other matrices, such as layers."""
    try:
        matrix = data.X
    except KeyError:  # raised by anndata in backed mode
        return None
    return None if getattr(matrix, "shape", None) is None else matrix


def _vectors(matrix: np.ndarray | spmatrix, cell_rows: np.ndarray) -> pa.Array:
    """Return the given rows of a matrix as vectors; row -1 gives null."""
    arrow = _checks.extra("pyarrow", "train")
    present = cell_rows >= 0
    dense = np.zeros((len(cell_rows), matrix.shape[1]), dtype=np.float32)
    if present.any():
        rows, inverse = np.unique(cell_rows[present], return_inverse=True)  # HDF5 requires increasing indices
        part = matrix[rows]
        dense[present] = np.asarray(part.toarray() if hasattr(part, "toarray") else part, dtype=np.float32)[inverse]
    values = arrow.array(dense.reshape(-1))
    return arrow.FixedSizeListArray.from_arrays(values, matrix.shape[1], mask=arrow.array(~present))


def write_embeddings(source: Path, out: Path, mean: np.ndarray, index: np.ndarray) -> None:
    """Write a copy of a file with the embeddings of its cells in `obsm["X_m3g"]`, NaN for cells without one.

    `mean` (m, d) are the embeddings of the cells `index` (m,), averaged over views.
    """
    data = _open(source)
    embeddings = np.full((data.n_obs, mean.shape[1]), np.nan, dtype=np.float32)
    embeddings[index] = mean
    data.obsm["X_m3g"] = embeddings
    with _obs_as_stored(source):
        data.write(out)


def _open(file: Path, *, backed: str | None = None) -> AnnData | MuData:
    with _obs_as_stored(file):
        if file.suffix == ".h5mu":
            return _checks.extra("mudata", "omics").read_h5mu(file, backed=backed)
        return _checks.extra("anndata", "omics").read_h5ad(file, backed=backed)


def _obs_as_stored(file: Path) -> contextlib.AbstractContextManager[object]:
    """Context in which mudata 0.3 does not copy columns of the modalities to `obs`, because copying emits a warning."""
    if file.suffix == ".h5mu":
        return _checks.extra("mudata", "omics").set_options(pull_on_update=False)
    return contextlib.nullcontext()
