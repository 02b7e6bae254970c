"""The results stored in the documentation belong to the current plans."""

import json
from pathlib import Path

import pytest

from m3g.experiments.engine.registry import NAMES, find
from m3g.experiments.engine.spec import Request

RESULTS = Path(__file__).parents[3] / "docs" / "results"
STORED = [name for name in NAMES if (RESULTS / name / "results.jsonl").is_file()]


@pytest.mark.parametrize("name", STORED)
def test_every_stored_run_is_a_run_of_the_plan(name):
    """A change of settings changes ids, so that `--collect` would omit the stored runs from all tables."""
    lines = (RESULTS / name / "results.jsonl").read_text(encoding="utf-8").splitlines()
    stored = {row["id"] for row in map(json.loads, lines) if row["experiment"] == name}
    assert stored
    assert stored <= {spec.id for spec in find(name).specs(Request())}
