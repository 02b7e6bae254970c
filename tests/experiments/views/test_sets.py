"""Data sets of k views."""

import numpy as np

from m3g.experiments.engine.spec import Request
from m3g.experiments.views import runs as views
from m3g.experiments.views import sets as view_sets


def test_documents_keep_their_most_frequent_words():
    counts = np.zeros((4, 600))
    counts[:, 550] = 9
    counts[0, 3] = 4
    kept = view_sets.frequent_words(counts)
    assert kept.shape == (4, 500)
    assert kept[:, -1].tolist() == [3, 3, 3, 3]
    assert kept[0].sum() == 5


def test_parts_of_the_digits_run_the_main_losses_and_the_baselines_only():
    parts = [name for name, entry in view_sets.SETS.items() if entry.part]
    assert parts == ["digits-3", "digits-4", "digits-5"]
    specs = views.EXPERIMENT.specs(Request())
    assert {spec.labels["arm"] for spec in specs if spec.labels["data"] in parts} == {*views.MAIN, *views.BASELINES}
    assert [len(view_sets.SETS[name].views) for name in view_sets.DIGITS_BY_NUMBER.values()] == [2, 3, 4, 5, 6]
