"""Plots of `m3g reproduce views`."""

from m3g.experiments.output.ranks import Ranks
from m3g.experiments.views import pictures
from pictures import colours


def row(arm, setting, linear, recall):
    labels = {"arm": arm, "data": "digits", "seed": 0, "stage": "grid", "loss_options.temperature": setting}
    return {"labels": labels, "metrics": {"linear_mean": linear, "recall": recall}}


def test_arms_that_do_not_differ_are_connected(tmp_path):
    ranks = Ranks({"m3g": 1.0, "infonce-pwe": 1.5, "byol-ave": 3.0}, 10, 0.01, 1.0, [["m3g", "infonce-pwe"]])
    files = pictures.critical_differences({"retrieval": ranks}, tmp_path / "ranks")
    assert [path.name for path in files] == ["ranks.png", "ranks.svg"]
    assert colours(tmp_path / "ranks.png") >= 2


def test_the_front_has_a_line_per_loss_with_all_sets(tmp_path):
    rows = [row(arm, setting, 0.5 + setting, 0.6 - setting) for arm in ("m3g", "mmcr") for setting in (0.1, 0.2)]
    assert pictures.front([], tmp_path / "front") == []
    assert len(pictures.front(rows, tmp_path / "front")) == 2
    text = (tmp_path / "front.svg").read_text()
    assert colours(tmp_path / "front.png") >= 2
    assert "<!-- m3g -->" in text
    assert "<!-- mmcr -->" in text


def test_arms_validated_without_recall_between_views_are_not_in_the_front(tmp_path):
    rows = [row(arm, setting, 0.5, 0.6) for arm in ("m3g", "m3g-rest") for setting in (0.1, 0.2)]
    for rest in rows[2:]:
        rest["metrics"]["recall_rest"] = rest["metrics"].pop("recall")
    assert len(pictures.front(rows, tmp_path / "front")) == 2


def test_without_finished_runs_nothing_is_drawn(tmp_path):
    assert pictures.missing_curves([], tmp_path / "missing") == []
    assert pictures.by_number([], tmp_path / "by_number") == []
    assert list(tmp_path.iterdir()) == []
