"""Arrays of Matlab files."""

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch

from m3g.data import Arrays
from m3g.data.storage.readers import ArrayFiles


def test_matlab_files_and_sparse_matrices_are_read(tmp_path):
    random = np.random.default_rng(0)
    a, b = random.normal(size=(30, 4)), random.normal(size=(30, 3))
    cells = np.empty((1, 2), dtype=object)
    cells[0, 0], cells[0, 1] = a, b.T
    scipy.io.savemat(tmp_path / "m.mat", {"X": cells, "y": np.arange(30) % 3})
    thin = scipy.sparse.random(30, 6, density=0.4, random_state=0, format="csr")
    scipy.sparse.save_npz(tmp_path / "s.npz", thin)
    scipy.sparse.save_npz(tmp_path / "t.npz", thin.tocoo())
    paths = [f"{tmp_path}/m.mat:X{{1}}", f"{tmp_path}/m.mat:X{{2}}'", f"{tmp_path}/s.npz", f"{tmp_path}/t.npz"]
    data = Arrays(paths, labels=f"{tmp_path}/m.mat:y'", standardize=False, batch_size=8)
    assert data.view_shapes == [(4,), (3,), (6,), (6,)]
    assert data.num_classes == 3
    index = data.datasets["test"].index
    for view, expected in zip(data.arrays("test")[0], (a, b, thin.toarray(), thin.toarray())):
        torch.testing.assert_close(view, torch.from_numpy(expected[index]).float())
    for key, message in (("", "choose one with"), (":X", "one entry of the cell array"), (":X{3}", r"got 'X\{3\}'")):
        with pytest.raises(ValueError, match=message):
            Arrays([paths[0], f"{tmp_path}/m.mat{key}"])
    (tmp_path / "no.mat").write_bytes(b"no Matlab file" * 20)
    with pytest.raises(ValueError, match="paths must be files that can be read"):
        Arrays([paths[0], f"{tmp_path}/no.mat"])


def test_entries_of_a_cell_array_are_counted_along_columns_as_in_matlab(tmp_path):
    cells = np.empty((2, 2), dtype=object)
    for i in range(4):
        cells[i % 2, i // 2] = np.full((5, 3), i + 1)
    scipy.io.savemat(tmp_path / "m.mat", {"X": cells})
    with ArrayFiles() as files:
        assert [files.read(f"{tmp_path}/m.mat:X{{{i}}}")[0, 0] for i in (1, 2, 3, 4)] == [1, 2, 3, 4]
