"""Arrays in `.npy` and `.npz` files equal those of numpy and scipy; damaged, large and pickled ones are errors."""

import io

import numpy as np
import pytest
import scipy.sparse

from fuzz.files import bomb_npz, npy_header
from m3g.data.storage import limits, numpy_files
from m3g.data.storage.numpy_files import Archive, load_npy, open_npy

ARRAYS = {
    "matrix": np.arange(12.0).reshape(3, 4),
    "fortran": np.asfortranarray(np.arange(24).reshape(2, 3, 4)),
    "scalar": np.array(3.5),
    "empty": np.zeros((0, 4)),
    "words": np.array(["one", "zwölf"]),
    "no characters": np.array(["", ""]),
    "big endian": np.arange(5, dtype=">i4"),
    "records": np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")]),
}


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def equal(array, expected):
    return array.dtype == expected.dtype and array.shape == expected.shape and bool((array == expected).all())


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_equal_those_of_numpy(tmp_path, monkeypatch, name, save):
    monkeypatch.setattr(numpy_files, "CHUNK", 7)
    expected = ARRAYS[name]
    np.save(tmp_path / "a.npy", expected)
    assert equal(load_npy(tmp_path / "a.npy"), expected)
    save(tmp_path / "a.npz", **{name: expected, "other": np.arange(3)})
    with Archive(tmp_path / "a.npz") as archive:
        assert archive.files == [name, "other"]
        assert not archive.is_sparse
        assert equal(archive[name], expected)
        assert equal(archive["other"], np.arange(3))


def test_every_version_of_the_header_is_read_and_the_data_follow(tmp_path):
    for version in ((1, 0), (2, 0), (3, 0)):
        content = io.BytesIO()
        np.lib.format.write_array(content, np.arange(6.0).reshape(2, 3), version=version)
        (tmp_path / "a.npy").write_bytes(content.getvalue())
        file, header = open_npy(tmp_path / "a.npy")
        with file:
            assert (header.shape, header.fortran, header.dtype, header.size) == ((2, 3), False, np.float64, 6)
            assert file.tell() == len(content.getvalue()) - 48


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
def test_sparse_matrices_equal_those_of_scipy(tmp_path, kind):
    matrix = scipy.sparse.random(12, 8, density=0.3, random_state=0, format=kind)
    for content in (matrix, getattr(scipy.sparse, f"{kind}_array")(matrix)):
        scipy.sparse.save_npz(tmp_path / "s.npz", content)
        with Archive(tmp_path / "s.npz") as archive:
            assert archive.is_sparse
            assert np.array_equal(archive.dense(), content.toarray())


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_indices_outside_a_sparse_matrix_are_rejected(tmp_path, kind):
    matrix = scipy.sparse.random(12, 8, density=0.3, random_state=0, format=kind)
    scipy.sparse.save_npz(tmp_path / "s.npz", matrix)
    with np.load(tmp_path / "s.npz") as stored:
        arrays = dict(stored)
    index = arrays["row" if kind == "coo" else "indices"]
    index[3] = 10**6
    np.savez(tmp_path / "s.npz", **arrays)
    with Archive(tmp_path / "s.npz") as archive, pytest.raises(ValueError, match="ind"):
        archive.dense()


def test_python_objects_are_rejected(tmp_path):
    objects = np.array([{"a": 1}], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=objects)
    with pytest.raises(ValueError, match="require pickle"):
        load_npy(tmp_path / "a.npy")
    with Archive(tmp_path / "a.npz") as archive, pytest.raises(ValueError, match="require pickle"):
        archive["x"]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_changed_byte_of_an_archive_is_an_error(tmp_path, save):
    """The checksum covers all bytes of an array, including its header."""
    save(tmp_path / "a.npz", x=np.random.default_rng(0).standard_normal(50))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[200] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    with Archive(tmp_path / "a.npz") as archive, pytest.raises(OSError, match="damaged"):
        archive["x"]


def test_files_of_another_kind_are_errors(tmp_path):
    (tmp_path / "a").write_bytes(b"neither an array nor an archive")
    with pytest.raises(ValueError, match=r"not an \.npy array"):
        load_npy(tmp_path / "a")
    with pytest.raises(OSError, match=r"not an \.npz archive"):
        Archive(tmp_path / "a")
    np.save(tmp_path / "whole.npy", np.zeros(100))
    (tmp_path / "half.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:900])
    with pytest.raises(ValueError, match=r"damaged: an array of shape \(100,\) in 900 bytes"):
        load_npy(tmp_path / "half.npy")


@pytest.mark.parametrize("declared", [(10**12,), (10**9, 10**9)])
@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_an_array_larger_than_its_file_is_rejected(working_folder, tmp_path, error_line, suffix, declared):
    if suffix == ".npz":
        bomb_npz("bomb.npz", declared)
    else:
        (tmp_path / "bomb.npy").write_bytes(npy_header(declared) + bytes(100))
    np.save("a.npy", np.ones((10, 2)))
    assert "damaged: an array of shape" in error_line("train", "--views", "a.npy", f"bomb{suffix}")


def test_a_compressed_array_larger_than_the_memory_is_rejected(working_folder, tmp_path, error_line, monkeypatch):
    np.savez_compressed("big.npz", x=np.zeros((1000, 1000)))
    np.save("a.npy", np.ones((1000, 2)))
    monkeypatch.setattr(limits, "memory_limit", lambda device: 10**6)
    assert "an array of shape (1000, 1000) must be at most" in error_line("train", "--views", "a.npy", "big.npz")
