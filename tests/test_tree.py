"""Tests mirror the tree of the package: the tests of m3g/a/b/c.py are in tests/a/b/test_c.py."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "m3g"
TOOLS = {"fuzz"}  # programs of their own, with tests


def packages(root):
    """Folders with Python files below a root, relative to it."""
    folders = {path.parent.relative_to(root) for path in root.rglob("*.py")}
    return {folder for folder in folders if folder.parts and folder.parts[0] not in TOOLS}


def test_every_folder_of_tests_mirrors_a_package():
    assert sorted(packages(TESTS) - packages(PACKAGE)) == []


def modules(package):
    """Modules of a subpackage, or of m3g itself for None, without `__init__` and `__main__`."""
    files = PACKAGE.glob("*.py") if package is None else (PACKAGE / package).rglob("*.py")
    return [file.relative_to(PACKAGE) for file in sorted(files) if not file.stem.startswith("__")]


def expected_tests(module):
    """Names under which a reader looks for the tests of a module: its own, or that of a folder that contains it."""
    own = module.with_name(f"test_{module.stem.lstrip('_')}.py")
    return [own, *(folder.with_name(f"test_{folder.name}.py") for folder in module.parents if folder.name)]


@pytest.mark.parametrize(
    "package", [None, *sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())]
)
def test_every_module_has_tests_of_its_name(package):
    assert [m for m in modules(package) if not any((TESTS / name).is_file() for name in expected_tests(m))] == []
