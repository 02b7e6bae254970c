"""Multi-view files in the layouts of published `.mat`, `.npz` and `.h5` files, and as sets of `m3g reproduce views`."""

import json

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from m3g.cli import main
from m3g.experiments.sources.multiview import read_views
from m3g.experiments.views import sets as view_sets

RANDOM = np.random.default_rng(0)
A, B = RANDOM.normal(size=(12, 5)), RANDOM.normal(size=(12, 3))
LABEL = np.arange(12) % 3


def cells(*entries):
    arrays = np.empty((len(entries), 1), dtype=object)
    for row, entry in enumerate(entries):
        arrays[row, 0] = entry
    return arrays


@pytest.mark.parametrize(
    "content",
    [
        {"X": cells(A, B), "y": LABEL[:, None]},  # 3Sources, Scene-15, Reuters
        {"data": cells(A.T, B.T), "truth": LABEL[:, None]},  # 100Leaves: columns are objects
        {"data": cells(A.T, B.T), "truelabel": cells(LABEL[None], LABEL[None])},  # BBCSport: labels per view
        {"X": cells(scipy.sparse.csc_matrix(A), scipy.sparse.csc_matrix(B)), "gt": LABEL[:, None]},
        {"first": A, "second": B, "Y": LABEL[:, None], "name": "words"},
    ],
)
def test_views_are_read_from_matlab_files(tmp_path, content):
    scipy.io.savemat(tmp_path / "file.mat", content)
    arrays = read_views(tmp_path / "file.mat")
    views = [arrays[name] for name in arrays if name != "label"]
    np.testing.assert_allclose(views[0], A, rtol=1e-6)
    np.testing.assert_allclose(views[1], B, rtol=1e-6)
    assert arrays["label"].tolist() == LABEL.tolist()


def test_views_are_read_from_npz_with_and_without_labels(tmp_path):
    np.savez(tmp_path / "file.npz", rna=A, protein=B, label=np.array(list("abcabcabcabc")))
    arrays = read_views(tmp_path / "file.npz")
    assert list(arrays) == ["rna", "protein", "label"]
    assert arrays["label"][0] == "a"
    np.savez(tmp_path / "file.npz", rna=A, images=RANDOM.normal(size=(12, 4, 4)))
    assert read_views(tmp_path / "file.npz")["images"].shape == (12, 16)
    np.savez(tmp_path / "file.npz", rna=A, protein=B[:7])
    with pytest.raises(ValueError, match=r"with one row or column per object, got rna .* and no labels"):
        read_views(tmp_path / "file.npz")


def test_views_are_read_from_hdf5_files(tmp_path):
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file["views/rna"], file["views/protein"], file["labels"] = A, B, LABEL
    arrays = read_views(tmp_path / "file.h5")
    assert {name: part.shape for name, part in arrays.items()} == {"protein": (12, 3), "rna": (12, 5), "label": (12,)}


def test_views_are_read_from_matlab_7_3_files(tmp_path):
    """Cell arrays are references, and matrices are stored by columns."""
    with h5py.File(tmp_path / "file.mat", "w") as file:
        file["#refs#/a"], file["#refs#/b"] = A.T, B.T
        file["X"] = np.array([[file["#refs#/a"].ref, file["#refs#/b"].ref]], dtype=h5py.ref_dtype)
        file["Y"] = LABEL[None].astype(float)
    arrays = read_views(tmp_path / "file.mat")
    np.testing.assert_allclose(arrays["view1"], B, rtol=1e-6)
    assert arrays["label"].tolist() == LABEL.tolist()


def test_a_file_below_views_is_a_set_of_the_benchmark(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(view_sets, "SETS", known := dict(view_sets.SETS))
    for module in ("runs", "scores", "added"):
        monkeypatch.setattr(f"m3g.experiments.views.{module}.SETS", known)
    label = np.arange(150) % 3
    hidden = np.eye(3)[label] + 0.1 * RANDOM.normal(size=(150, 3))
    (tmp_path / "views").mkdir()
    content = {"X": cells(hidden, hidden @ RANDOM.normal(size=(3, 4))), "y": label[:, None]}
    scipy.io.savemat(tmp_path / "views" / "webkb.mat", content)
    command = ["reproduce", "views", "--out", str(tmp_path / "out"), "--seeds", "1", "--sets", "webkb"]
    assert main([*command, "--data", str(tmp_path), "--methods", "raw", "infonce-pwe"]) == 0
    assert "measured runs of" in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert {row["labels"]["data"] for row in rows} == {"webkb"}
    known.pop("webkb")  # as in a new process, which has only the folder of results
    assert main(["reproduce", "views", "--out", str(tmp_path / "out"), "--collect"]) == 0
    assert "webkb" in capsys.readouterr().out
