"""Steps of the solvers."""

import json

from experiments.miniature import small_runs


def test_newton_requires_fewer_steps_than_sinkhorn(tmp_path):
    text, _ = small_runs("iterations", None, tmp_path, keep=lambda spec: spec.labels["epsilon"] <= 0.1)
    steps = {}
    for line in (tmp_path / "results.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert row["metrics"]["converged"]
        steps.setdefault(row["labels"]["arm"], []).append(row["metrics"]["steps"])
    assert sum(steps["factored"]) < sum(steps["sinkhorn"])
    assert "Largest difference between the values" in text
