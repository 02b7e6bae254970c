"""Scores by arm, data set and seed."""

import math

from m3g.experiments.views import scores as module
from m3g.experiments.views.scores import common, complete, means, scores


def row(arm, data="digits", seed=0, stage="test", **metrics):
    return {"labels": {"arm": arm, "data": data, "seed": seed, "stage": stage}, "metrics": metrics}


def test_m3g_is_first_and_baselines_and_controls_are_last():
    arms = ["raw", "vicreg", "m3g, 1000 steps", "infonce-pwe", "m3g"]
    by_arm = scores([row(arm, recall=0.5) for arm in arms], "recall")
    assert list(by_arm) == ["m3g", "infonce-pwe", "vicreg", "raw", "m3g, 1000 steps"]


def test_runs_without_a_score_are_omitted():
    rows = [row("m3g", seed=0, recall=0.5), row("m3g", seed=1, recall=math.nan), row("m3g", seed=2, nmi=0.1)]
    assert scores(rows, "recall") == {"m3g": {"digits": {0: 0.5}}}
    kept = module.measured([row("m3g"), row("m3g", stage="grid"), row("m3g", diverged="NaN")])
    assert [(one["labels"]["stage"], one["metrics"]) for one in kept] == [("test", {})]


def test_only_arms_with_all_common_sets_are_ranked():
    table = {
        "m3g": {"a": {0: 0.2, 1: 0.4}, "b": {0: 0.5}},
        "infonce-pwe": {"a": {0: 0.1}, "b": {0: 0.2}, "c": {0: 0.3}},
        "vicreg": {"a": {0: 0.9}},
        "supervised": {"a": {0: 0.9}, "b": {0: 0.9}},
        "m3g, plain": {"a": {0: 0.1}, "b": {0: 0.1}},
    }
    assert common(means(table)) == {"a", "b"}
    by_arm = complete(table)
    assert set(by_arm) == {"m3g", "infonce-pwe"}
    assert math.isclose(by_arm["m3g"]["a"], 0.3)
