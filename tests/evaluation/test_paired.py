"""Intervals of paired differences."""

import numpy as np

from m3g.evaluation.paired import bootstrap, paired


def test_intervals_have_their_nominal_coverage():
    """Of 200 pairs of equal arms, about one in twenty has an interval that excludes 0."""
    rng = np.random.default_rng(0)
    wrong = {"paired": 0, "bootstrap": 0}
    for _ in range(200):
        ours, theirs = (dict(enumerate(rng.standard_normal(40))) for _ in range(2))
        wrong["paired"] += paired(ours, theirs).verdict != "tie"
        wrong["bootstrap"] += bootstrap(ours, theirs).verdict != "tie"
    assert all(1 <= number <= 24 for number in wrong.values()), wrong
