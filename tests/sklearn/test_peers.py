"""The comparison with cca-zoo and polyview in docs/sklearn.md, on one split of one set."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from m3g.evaluation.canonical import canonical

pytest.importorskip("cca_zoo", reason="cca-zoo requires Python 3.11")
BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "estimators.py"))


@pytest.mark.parametrize("method", BENCHMARK["METHODS"])
def test_every_library_aligns_the_views(method):
    views, labels = BENCHMARK["tumour_statistics"]()
    all_views, one_view, recall, seconds = BENCHMARK["measure"](method, views, labels, 0)
    chance = 100 / (0.4 * len(labels))
    assert all_views > 100 * np.bincount(labels).max() / len(labels) + 20
    assert one_view > 80
    assert recall > 30 * chance
    assert seconds > 0


def test_polyview_and_cca_zoo_agree_with_linear_cca_of_m3g():
    from cca_zoo.linear import MCCA
    from polyview import MCCA as PolyviewMCCA

    random = np.random.default_rng(0)
    shared = random.standard_normal((300, 3))
    views = [shared @ random.standard_normal((3, d)) + 0.3 * random.standard_normal((300, d)) for d in (5, 6, 7)]
    views = [view - view.mean(0) for view in views]
    directions, _ = canonical([torch.from_numpy(view) for view in views], size=3, ridge=1e-9)
    ours = [view @ part.numpy() for view, part in zip(views, directions)]
    for theirs in (
        MCCA(3, shrinkage=1e-9).fit(views).transform(views),
        PolyviewMCCA(3, regularisation=1e-9, output="list", eigen_solver="dense").fit(views).transform(views),
    ):
        for a, b in zip(ours, theirs):
            for j in range(3):
                assert abs(np.corrcoef(a[:, j], b[:, j])[0, 1]) > 0.999
