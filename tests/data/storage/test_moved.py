"""Files that cells name: in the folder of the table, or below a new folder."""

from pathlib import Path

import pytest

from m3g.data.storage.moved import Folders


@pytest.fixture
def folders(tmp_path):
    for name in ("table/a.png", "new/pics/a.png", "new/pics/b.png", "outside.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return Folders(tmp_path / "table", tmp_path / "new")


@pytest.mark.parametrize("cell", ["pics/a.png", "/old/data/pics/a.png", "../pics/a.png"])
def test_the_new_folder_is_searched_first_by_the_last_parts_of_the_path(folders, cell):
    assert folders.find(cell, allow_outside=False) == folders.root / "pics/a.png"


def test_the_folder_of_the_table_is_searched_next(folders):
    assert folders.find("a.png", allow_outside=False) == folders.table / "a.png"
    assert folders.find("pics/c.png", allow_outside=False) is None


@pytest.mark.parametrize("cell", ["../outside.png", "{}/outside.png"])
def test_other_folders_are_accessed_only_if_allowed(folders, cell, monkeypatch):
    cell = cell.format(folders.table.parent)
    assert folders.find(cell, allow_outside=True).resolve() == folders.table.parent / "outside.png"
    accessed = []
    monkeypatch.setattr(Path, "is_file", lambda path: accessed.append(path))
    assert folders.find(cell, allow_outside=False) is None
    assert accessed
    assert all(map(folders.contain, accessed))


def test_a_link_out_of_the_new_folder_is_not_followed(folders):
    (folders.root / "pics/link.png").symlink_to(folders.table.parent / "outside.png")
    assert folders.find("pics/link.png", allow_outside=False) is None
    assert folders.find("pics/link.png", allow_outside=True) == folders.root / "pics/link.png"
