"""`import m3g` is lazy: torch is imported with the first name that requires it; public names are complete."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import m3g

SOURCES = sorted(Path(m3g.__file__).parent.rglob("*.py"))


def test_the_import_loads_neither_torch_nor_numpy():
    program = "import m3g, sys; print(sorted({'torch', 'numpy', 'scipy'} & set(sys.modules)))"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert completed.stdout == "[]\n"


def test_every_public_name_is_listed_and_found():
    assert set(m3g.__all__) <= set(dir(m3g))
    assert "load" in dir(m3g)
    for name in m3g.__all__:
        assert getattr(m3g, name).__name__ == name


def test_submodules_are_attributes():
    program = "import m3g; print(m3g.losses.build('m3g').tol, m3g.solvers.Auto.__name__)"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert completed.stdout == "0.001 Auto\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'm3g' has no attribute 'nonsense'"):
        _ = m3g.nonsense


def test_python_suggests_the_name_that_is_similar_to_a_misspelt_one():
    completed = subprocess.run([sys.executable, "-c", "import m3g; m3g.M3Gloss"], capture_output=True, text=True)
    assert completed.stderr.endswith("has no attribute 'M3Gloss'. Did you mean: 'M3GLoss'?\n")


def test_no_module_requires_unix():
    required = r"^\s*(?:import|from) (?:fcntl|resource|termios|pwd|grp|tty)\b"
    required += r"|os\.(?:O_NOFOLLOW|O_CLOEXEC|fork|sched_getaffinity|killpg)\b"
    assert [path for path in SOURCES if re.search(required, path.read_text(encoding="utf-8"), re.MULTILINE)] == []
