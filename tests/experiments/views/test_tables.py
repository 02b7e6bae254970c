"""The digits with a subset of their views: part of the curve against k, but of no mean over data sets."""

from m3g.experiments.views import runs as views
from m3g.experiments.views import sets as view_sets
from m3g.experiments.views import tables as views_tables
from pictures import colours


def test_the_curve_has_all_numbers_and_the_other_tables_only_whole_sets(tmp_path):
    rows = [
        {
            "labels": {"arm": arm, "data": data, "seed": seed, "stage": "test"},
            "metrics": dict.fromkeys(("linear_mean", "recall", "recall_rest"), 0.3 + place / 10 + number / 100),
            "seconds": 1.0,
        }
        for place, data in enumerate([*view_sets.DIGITS_BY_NUMBER.values(), "scenes"])
        for number, arm in enumerate(views.MAIN)
        for seed in range(2)
    ]
    text = views_tables.collect(rows, tmp_path)
    before, curve = text.split("## Digits with the first k of their views")
    assert "infonce-ave | 32.0 ± 0.0 | 42.0 ± 0.0 | 52.0 ± 0.0 | 62.0 ± 0.0 | 72.0 ± 0.0 |" in " ".join(curve.split())
    assert "digits-2" in before
    assert "digits-3" not in text
    assert colours(tmp_path / "by_number.png") >= 3
