"""Files and folders of the user's data folder."""

import numpy as np
import pytest

from m3g.experiments.sources.files import MissingData, check_paths, find_file, find_folder, once


def test_a_file_is_found_in_the_folder_or_directly_below_it(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "b.npz").touch()
    assert find_file(tmp_path, "a.npz", "b.npz") == tmp_path / "below" / "b.npz"
    (tmp_path / "a.npz").touch()
    assert find_file(tmp_path, "a.npz", "b.npz") == tmp_path / "a.npz"
    for source, shown in ((tmp_path, str(tmp_path)), (None, "no folder")):
        with pytest.raises(MissingData, match=r"contains c\.npz, got") as error:
            find_file(source, "c.npz")
        assert shown in str(error.value)


def test_folders_are_found_with_any_case_and_separators(tmp_path):
    for name in ("real_world", "ART"):
        (tmp_path / "one" / "two" / name).mkdir(parents=True)
    folders = find_folder(tmp_path, ["Real World", "Art"], hint="two folders")
    assert {part: path.name for part, path in folders.items()} == {"Real World": "real_world", "Art": "ART"}
    with pytest.raises(MissingData, match="contains two folders, got"):
        find_folder(tmp_path, ["Real World", "Product"], hint="two folders")


def test_missing_paths_are_named_with_the_command_that_creates_them(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(MissingData, match=r"contains val \(made by m3g prepare\)"):
        check_paths(tmp_path, "train", "val", made_by="m3g prepare")


def test_a_file_is_made_once(tmp_path):
    calls = []

    def make():
        calls.append(1)
        return {"x": np.arange(3)}

    for _ in range(2):
        once(tmp_path / "new", "a.npz", make)
    assert len(calls) == 1
    assert np.load(tmp_path / "new" / "a.npz")["x"].tolist() == [0, 1, 2]
