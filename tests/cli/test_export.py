"""Options of `m3g export`."""

import sys

import pytest

from m3g.cli import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "onix"], "format must be one of 'onnx', 'torch', got 'onix'"),
        (["--precision", "fp8"], "precision must be one of"),
        (["--format", "torch", "--precision", "int8"], "precision must be fp32 with format 'torch', got 'int8'."),
    ],
)
def test_wrong_options_are_rejected(copy, tmp_path, capsys, words, message):
    assert main(["export", str(copy), "--out", str(tmp_path / "out"), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_package_is_an_error_that_names_the_extra(copy, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert main(["export", str(copy), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "m3g: error: onnxscript is not installed: pip install 'm3g[onnx]'.\n"
