"""The programs in benchmarks: every module imports, and every program rejects unknown options before it measures."""

import importlib
import json
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(file.stem for file in (ROOT / "benchmarks").glob("*.py") if file.stem != "__init__")
PROGRAMS = [name for name in MODULES if "__main__" in (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")]
EXTRAS = {"estimators": "cca_zoo"}  # installed with Python 3.11 or later


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.parametrize("name", MODULES)
def test_every_module_imports(name):
    if name in EXTRAS:
        pytest.importorskip(EXTRAS[name], reason="requires Python 3.11")
    assert importlib.import_module(f"benchmarks.{name}").__doc__


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_rejects_unknown_options(name, monkeypatch, capsys):
    if name in EXTRAS:
        pytest.importorskip(EXTRAS[name], reason="requires Python 3.11")
    # runpy warns about a module that is already imported.
    monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)
    monkeypatch.setattr(sys, "argv", [name, "--no-such-option"])
    with pytest.raises(SystemExit) as raised:
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    assert raised.value.code == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize("words", [["orbits"], ["solvers", "--only", "orbits"], ["multiway", "--only", "small"]])
def test_unknown_suites_and_parts_are_named(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    with pytest.raises(SystemExit):
        importlib.import_module("benchmarks.__main__").main()
    assert f"got {words[-1]!r}." in capsys.readouterr().err


def test_the_stored_solver_tables_are_those_of_the_stored_rows():
    results = ROOT / "benchmarks" / "results"
    rows = json.loads((results / "solvers.json").read_text(encoding="utf-8"))["rows"]
    table = importlib.import_module("benchmarks.solvers").as_markdown(rows)
    assert (results / "solvers.md").read_text(encoding="utf-8") == table
    # The README and the page on speed quote the means by number of tuples.
    means = [
        line.split(" | ")[2] for line in table.splitlines() if line.startswith(("| less than", "| 1e6", "| at least"))
    ]
    smaller, middle, larger = means
    for page in ("README.md", "docs/results/speed.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert f"is {larger} for at least 10⁷" in text
        assert f"{middle} for 10⁶ to 10⁷, and {smaller} for fewer" in text
