"""Scores against the number of steps."""

from m3g.experiments.output.lengths import length_table
from pictures import colours


def row(arm, stage, steps, score, *, k=3, seed=0):
    labels = {"arm": arm, "stage": stage, "seed": seed, "k": k}
    if stage == "test":  # one epoch instead of a number of steps
        config = {"loop": {"epochs": 1}, "data_options": {"batch_size": 16, "points_per_epoch": 16 * steps}}
    else:
        config = {"loop": {"max_steps": steps}, "data_options": {}}
    return {"labels": labels, "settings": {"config": config}, "metrics": {"validation": score}}


def test_runs_of_the_usual_length_complete_the_table(tmp_path):
    rows = [row("m3g", "length", 50, 0.4), row("m3g", "test", 200, 0.5), row("m3g", "length", 400, 0.6)]
    others = [row("m3g", "test", 200, 0.9, k=4), row("infonce", "test", 200, 0.9), row("m3g", "grid", 200, 0.9)]
    table, picture = length_table(rows + others, lambda row: row["labels"]["k"], tmp_path / "steps", test_to_train=0.5)
    assert [" ".join(line.split()) for line in table.splitlines() if "---" not in line] == [
        "| validation %, by steps | 50 | 200 | 400 |",
        "| m3g | 40.0 | 50.0 | 60.0 |",
    ]
    assert "steps.png" in picture
    assert colours(tmp_path / "steps.png") >= 2


def test_without_other_lengths_there_is_no_table(tmp_path):
    assert length_table([row("m3g", "test", 200, 0.5)], lambda row: None, tmp_path / "steps", test_to_train=0.0) == []
    assert list(tmp_path.iterdir()) == []
