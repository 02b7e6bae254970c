"""Every notebook runs from top to bottom."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_has_a_badge_and_no_stored_output(path):
    cells = nbformat.read(path, as_version=4).cells
    assert "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]" in cells[0].source
    assert not any(cell.get("outputs") for cell in cells)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path):
    NotebookClient(nbformat.read(path, as_version=4), timeout=550, kernel_name="python3").execute()
