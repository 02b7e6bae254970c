"""Unseen domains, in miniature."""

import json
import re

from experiments.miniature import small_runs
from m3g.experiments.domainnet.runs import LENGTHS
from m3g.experiments.output import published
from pictures import colours


def test_domainnet_runs_and_is_collected(sets, tmp_path, monkeypatch):
    monkeypatch.setitem(published.DOMAINNET["sketch"], "m3g", (1.23, 4.5))

    def keep(spec):
        labels = spec.labels
        return labels["held_out"] in ("display", "sketch") and labels["control"] in ("", "no teacher")

    methods = ["m3g", "byol-ave", "raw", "supervised"]
    text, specs = small_runs("domainnet", sets, tmp_path, methods=methods, keep=keep)
    assert "| display" in text
    assert re.search(r"references, unseen, accuracy % \| raw +\| supervised", text)
    assert "no teacher" in text
    assert "chosen" in text
    assert re.search(r"\| sketch +\| 21.6 ± 0.6 \|.*\| 1.23 ± 4.5 +\|", text)
    assert colours(tmp_path / "fonts_pairs.png") >= 2
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert {row["id"] for row in rows} == {spec.id for spec in specs}
    tuned = [row for row in rows if row["labels"]["arm"] == "m3g" and row["labels"]["stage"] == "test"]
    assert all("loss_options.temperature" in row["chosen"] for row in tuned)
    lengths = [row for row in rows if row["labels"]["stage"] == "length"]
    assert {row["labels"]["steps"] for row in lengths} == set(LENGTHS)
    assert colours(tmp_path / "fonts_steps.png") >= 2
