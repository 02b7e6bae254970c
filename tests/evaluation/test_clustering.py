"""Agreement of clusters with classes."""

import itertools

import numpy as np
import pytest

from m3g.evaluation.clustering import agreement


def test_clustering_accuracy_uses_the_best_assignment_of_clusters():
    random = np.random.default_rng(0)
    clusters, classes = random.integers(0, 4, (2, 40))
    best = max(np.mean(np.array(names)[clusters] == classes) for names in itertools.permutations(range(4)))
    assert agreement(clusters, classes).accuracy == pytest.approx(best)
