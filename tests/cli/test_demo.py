"""`m3g demo`: its columns, and an output folder that exists."""

import pytest

from m3g.cli.demo import probes_on_fewer


def test_scores_on_all_views_one_view_and_most_entries_missing():
    subsets = [{"views": [0], "linear": 0.4}, {"views": [1], "linear": 0.6}, {"views": [0, 1], "linear": 0.9}]
    missing = {"subsets": subsets, "curve": {"linear": [0.9, 0.8, 0.7]}}
    scores = probes_on_fewer(missing, "linear")
    assert scores == {"linear_mean": 0.9, "one_view": pytest.approx(0.5), "most_missing": 0.7}


def test_an_existing_folder_is_not_used(error_line, tmp_path):
    assert "--out must be a folder that does not exist yet" in error_line("demo", "--out", tmp_path)
    assert list(tmp_path.iterdir()) == []
