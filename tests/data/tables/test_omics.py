"""Single-cell files: modalities as views, unpaired cells as missing entries, embeddings written back."""

import sys

import anndata
import mudata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from m3g.cli import main
from m3g.data.tables.source import open_table

QUICK = ["--loop.epochs", "1", "--heads.hidden", "8", "--data_options.batch_size", "20", "--logger", "none"]


@pytest.fixture
def cells(tmp_path, monkeypatch):
    """80 cells: rna (sparse) of the first 70, protein (dense) of the last 60, with a type for all."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names = np.array([f"cell{i}" for i in range(80)])
    kind = pd.Series(["T", "B"] * 40, index=names)
    parts = {}
    for name, rows, width in (("rna", slice(0, 70), 30), ("protein", slice(20, 80), 6)):
        matrix = rng.poisson(1.0, (80, width)).astype(np.float32)[rows]
        obs = pd.DataFrame({"type": kind.iloc[rows].to_numpy()}, index=names[rows])
        part = anndata.AnnData(scipy.sparse.csr_matrix(matrix) if name == "rna" else matrix, obs=obs)
        part.var_names = [f"{name}{i}" for i in range(width)]
        parts[name] = part
    with mudata.set_options(pull_on_update=False):
        whole = mudata.MuData(parts)
        whole.obs["type"] = kind.reindex(whole.obs_names).to_numpy()
        whole.write("cells.h5mu")
    return whole


def test_unpaired_cells_are_missing_entries(cells):
    source = open_table("cells.h5mu")
    assert source.num_rows == 80
    for name, part in cells.mod.items():
        rows = source.column(name)
        for cell, row in zip(cells.obs_names, rows):
            if cell in part.obs_names:
                expected = part[cell].X
                expected = expected.toarray() if scipy.sparse.issparse(expected) else np.asarray(expected)
                np.testing.assert_array_equal(row, expected.ravel())
            else:
                assert row is None
    assert source.column("type") == cells.obs["type"].tolist()


def test_a_modality_without_a_matrix_is_not_a_view(cells):
    part = cells.mod["rna"]
    part.X = None
    part.obsm["spatial"] = np.ones((70, 2))
    part.write_h5ad("cells.h5ad")
    assert list(open_table("cells.h5ad").types) == ["spatial", "type"]
    with mudata.set_options(pull_on_update=False):
        cells.write("cells.h5mu")
    assert list(open_table("cells.h5mu").types) == ["protein", "type"]


def test_embeddings_are_written_back_to_the_file(cells):
    assert main(["train", "--table", "cells.h5mu", "--labels", "type", *QUICK, "--out", "run"]) == 0
    assert main(["embed", "run", "--out", "new.h5mu"]) == 0
    assert main(["embed", "run", "--out", "new.npz"]) == 0
    with mudata.set_options(pull_on_update=False):
        whole = mudata.read_h5mu("new.h5mu")
    embeddings = whole.obsm["X_m3g"]
    assert list(whole.obs) == ["type"]
    stored = np.load("new.npz")
    assert embeddings.shape == (80, 64)
    np.testing.assert_allclose(embeddings[stored["index"]], stored["mean"], atol=1e-6)
    np.testing.assert_array_equal(stored["mask"].sum(1), [70, 60])


def test_h5ad_matrices_are_views(cells):
    part = cells.mod["rna"].copy()
    part.obsm["spatial"] = np.random.default_rng(0).standard_normal((70, 2))
    part.write_h5ad("cells.h5ad")
    source = open_table("cells.h5ad")
    np.testing.assert_allclose(source.column("spatial"), part.obsm["spatial"], rtol=1e-6)
    np.testing.assert_array_equal(source.column("X"), part.X.toarray())
    frame = pd.DataFrame(part.obsm["spatial"], index=part.obs_names, columns=["x", "y"])
    part.obsm["frame"] = frame
    part.write_h5ad("frames.h5ad")
    np.testing.assert_allclose(open_table("frames.h5ad").column("frame"), frame, rtol=1e-6)


def test_a_missing_package_is_an_error_that_names_the_extra(cells, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mudata", None)
    assert main(["train", "--table", "cells.h5mu", "--out", "run"]) == 2
    assert capsys.readouterr().err == "m3g: error: mudata is not installed: pip install 'm3g[omics]'.\n"


def test_a_damaged_file_is_reported(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cells.h5ad").write_bytes(b"no file of this kind")
    assert main(["train", "--table", "cells.h5ad", "--out", "run"]) == 2
    assert "table must be a file that can be read, got 'cells.h5ad'" in capsys.readouterr().err
