"""Tests mirror the tree of the package: the tests of m3g/a/b are in tests/a/b."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "m3g"
TOOLS = {"fuzz"}  # programs of their own, with tests


def packages(root):
    """Folders with Python files below a root, relative to it."""
    found = {path.parent.relative_to(root) for path in root.rglob("*.py")}
    return {folder for folder in found if folder.parts and folder.parts[0] not in TOOLS}


def test_every_folder_of_tests_mirrors_a_package():
    assert sorted(packages(TESTS) - packages(PACKAGE)) == []


@pytest.mark.parametrize("package", sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()))
def test_every_package_has_tests(package):
    assert list((TESTS / package).rglob("test_*.py"))
