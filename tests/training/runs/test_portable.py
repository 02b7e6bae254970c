"""Exported networks: files agree with PyTorch, require only onnxruntime and numpy, and wrong ones are removed."""

import contextlib
import io
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
import torch

import animals
import m3g
from m3g.cli import main
from m3g.training.runs import portable

QUICK = ["--loop.epochs", "1", "--heads.hidden", "8", "--loop.evaluate_every", "0", "--logger", "none"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on two views of numbers, one of which is far from unit scale, and their arrays."""
    folder = tmp_path_factory.mktemp("trained")
    rng = np.random.default_rng(0)
    arrays = {"a": rng.normal(50, 20, (80, 5)), "b b": rng.normal(size=(80, 3))}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    files = [str(folder / f"{name}.npy") for name in arrays]
    words = ["--encoder_options.width", "8", "--data_options.batch_size", "20", "--out", str(folder / "run")]
    assert main(["train", *QUICK, *words, "--views", *files]) == 0
    return folder / "run", arrays


@pytest.fixture(scope="module")
def exported(trained):
    """The folder of its ONNX files, and what was printed."""
    folder, printed = trained[0].parent / "exported", io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["export", str(trained[0]), "--format", "onnx", "--out", str(folder)]) == 0
    return folder, printed.getvalue()


def test_onnx_files_give_the_embeddings_for_any_number_of_rows(trained, exported):
    (run, arrays), (folder, printed) = trained, exported
    assert "compared on 16 rows of the data" in printed
    assert {path.name for path in folder.iterdir()} == {"a.onnx", "b_b.onnx", "views.json"}
    net = m3g.load(run)
    for rows in (1, 2, 80):
        expected = net([torch.from_numpy(array[:rows]) for array in arrays.values()]).detach().numpy()
        for l, (file, array) in enumerate(zip(("a", "b_b"), arrays.values())):
            session = onnxruntime.InferenceSession(folder / f"{file}.onnx")
            (embeddings,) = session.run(None, {session.get_inputs()[0].name: array[:rows].astype(np.float32)})
            np.testing.assert_allclose(embeddings, expected[l], atol=1e-4)


def test_exported_files_require_only_onnxruntime_and_numpy(exported):
    program = (
        "import sys; sys.modules['torch'] = sys.modules['m3g'] = None\n"
        "import numpy, onnxruntime\n"
        "session = onnxruntime.InferenceSession('a.onnx')\n"
        "print(session.run(None, {'view': numpy.zeros((4, 5), numpy.float32)})[0].shape)\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", program], cwd=exported[0], capture_output=True, text=True, check=True
    )
    assert completed.stdout == "(4, 64)\n"


def test_torch_files_give_the_embeddings(trained, tmp_path):
    run, arrays = trained
    assert main(["export", str(run), "--format", "torch", "--out", str(tmp_path / "out")]) == 0
    loaded = torch.export.load(tmp_path / "out" / "a.pt2").module()
    expected = m3g.load(run)([torch.from_numpy(array) for array in arrays.values()])[0]
    torch.testing.assert_close(loaded(torch.from_numpy(arrays["a"]).float()), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_reduced_precision_reports_the_change_of_recall(trained, exported, tmp_path, precision):
    run, arrays = trained
    full = json.loads((exported[0] / "views.json").read_text())
    small = portable.export(run, tmp_path / precision, precision=precision)
    assert set(small["recall_at_1"]) == {"pytorch", "exported"}
    assert small["views"][0]["difference"] > full["views"][0]["difference"]
    session = onnxruntime.InferenceSession(tmp_path / precision / "a.onnx")
    (embeddings,) = session.run(None, {"view": arrays["a"].astype(np.float32)})
    expected = m3g.load(run)([torch.from_numpy(array) for array in arrays.values()])[0].detach().numpy()
    assert np.abs(embeddings - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.slow
def test_every_kind_of_view_is_exported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    animals.write_csv(tmp_path, animals.rows(tmp_path, 60))
    words = ["--table", "objects.csv", "--labels", "kind", "--data_options.ignore", "[home]"]
    assert main(["train", *QUICK, *words, "--data_options.batch_size", "20", "--out", "run"]) == 0
    content = portable.export("run", "out")
    kinds = {view["kind"] for view in content["views"]}
    assert {"image", "audio", "tfidf", "vector", "table"} <= kinds
    assert max(view["difference"] for view in content["views"]) < 1e-4
    assert content["test_rows"]


def test_a_file_that_differs_from_pytorch_is_removed(trained, tmp_path, monkeypatch, capsys):
    write_onnx = portable._write_onnx
    monkeypatch.setattr(portable, "_write_onnx", lambda *args: lambda array: write_onnx(*args)(array) + 1e-2)
    assert main(["export", str(trained[0]), "--out", str(tmp_path / "out")]) == 2
    assert "view 'a' must have the same embeddings as in PyTorch when exported" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_data_rows_are_drawn_and_reduced_precision_is_an_error(trained, tmp_path, capsys, monkeypatch):
    def missing(config, run):
        raise ValueError("no such file")

    monkeypatch.setattr(portable, "build_data", missing)
    assert main(["export", str(trained[0]), "--out", str(tmp_path / "out"), "--format", "torch"]) == 0
    assert "compared on 64 random rows, because the data cannot be read" in capsys.readouterr().out
    assert not json.loads((tmp_path / "out" / "views.json").read_text())["test_rows"]
    assert main(["export", str(trained[0]), "--out", str(tmp_path / "int8"), "--precision", "int8"]) == 2
    assert "precision must be fp32 if the data of the run cannot be read" in capsys.readouterr().err


def test_random_rows_have_the_dtype_of_their_view():
    def unreadable():
        raise OSError("no data")

    inputs = [{"kind": "text"}, {"kind": "text", "processor": {"tokens": []}}, {"kind": "vector"}]
    net = SimpleNamespace(view_shapes=[(5,), (6,), (3,)], inputs=inputs)
    rows = portable._rows(SimpleNamespace(open=unreadable), net, required=False)
    assert [view.dtype for view in rows.views] == [torch.uint8, torch.int32, torch.float32]
