"""Swapped entries, in miniature."""

import json

from experiments.miniature import small_runs
from pictures import colours


def test_mismatch_runs_and_is_collected(tmp_path):
    text, specs = small_runs("mismatch", None, tmp_path, keep=lambda spec: spec.labels["share"] <= 0.1)
    assert len(specs) == 8
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    detected = [row["metrics"] for row in rows if row["labels"]["mismatch"] and row["labels"]["share"]]
    assert all({"auc", "among_first", "wrong_left_out", "right_left_out"} <= set(metrics) for metrics in detected)
    for part in ("swaps in the first 15%, median", "R@1, remaining drop", "with minus without mismatch"):
        assert part in text
    assert (tmp_path / "table.md").read_text() in text + "\n"
    assert colours(tmp_path / "mismatch.png") >= 2
