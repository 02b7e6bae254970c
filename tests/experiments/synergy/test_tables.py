"""Tables of synergy from finished runs."""

from m3g.experiments.synergy import tables

ARMS = ("m3g, product", "symile")


def row(data, arm, seed, found, stage="test"):
    labels = {"data": data, "arm": arm, "seed": seed, "stage": stage}
    metrics = {"found": found, "score": "product"}
    return {"labels": labels, "metrics": metrics, "chosen": {"loss_options.temperature": 0.2}, "seconds": 1.0}


def test_losses_are_compared_over_splits(tmp_path):
    rows = [row("bits-100", "m3g, product", seed, 0.9 + seed / 100) for seed in range(3)]
    rows += [row("bits-100", "infonce-ave", seed, 0.1 + seed / 50) for seed in range(3)]
    rows += [row("digits", "m3g, product", 0, 0.5), row("digits", "infonce-ave", 0, 0.4, stage="grid")]
    text = tables.collect(rows, tmp_path)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    levels = next(line for line in lines if line.startswith("| m3g, product |"))
    assert "50.0 |" in levels  # one split has no interval
    assert "91.0 ± " in levels
    (difference,) = (line for line in lines if line.startswith("| infonce-ave |") and "ahead" in line)
    assert "+79.0 ± " in difference
    assert "| m3g, product | 0.2 product | 0.2 product |" in lines
    assert (tmp_path / "table.md").read_text() in text + "\n"
    assert (tmp_path / "synergy.png").is_file()


def test_labels_of_utterances_have_a_separate_table(tmp_path):
    rows = [row("utterances", "m3g, product", 0, 0.01), row("utterances", "supervised", 0, 0.8)]
    rows[0]["metrics"]["probe"] = 0.9
    del rows[1]["metrics"]["score"]
    text = tables.collect(rows, tmp_path)
    retrieval, sentiment = (" ".join(part.split()) for part in text.split("## Sentiment"))
    assert "| m3g, product | 1.0 |" in retrieval
    assert "supervised" not in retrieval
    assert "| m3g, product | 90.0 | | supervised | 80.0 |" in sentiment


def test_runs_at_one_temperature_have_their_own_table(tmp_path):
    rows = [row("digits-hard", arm, seed, 0.6 + seed / 100, stage="control") for arm in ARMS for seed in range(2)]
    rows += [{**row("digits-hard", arm, 0, 0.3, stage="length")} for arm in ARMS]
    for one in rows:
        steps = 500 if one["labels"]["stage"] == "length" else 1500
        one["settings"] = {"config": {"data_options": {}, "loop": {"max_steps": steps}}}
        one["metrics"]["validation"] = one["metrics"]["found"] - 0.1
    text = tables.collect(rows, tmp_path)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "| symile | 20.0 | 50.0 |" in lines  # validation after 500 and 1500 steps
    assert any(line.startswith("| m3g, product | 60.5 ± ") for line in lines)
    assert (tmp_path / "steps.png").is_file()
