"""The estimators start at linear CCA and keep the network that is best on held-out rows, as `m3g train` does."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

from m3g.evaluation import LinearCCA, mean_reciprocal_rank
from m3g.sklearn import MultiViewEmbedding, fitting
from m3g.training.loop.selection import not_worse


def noisy_views(n, *, seed=0, curved=False):
    """Three wide views of n rows that share four numbers."""
    rng, weights = np.random.default_rng(seed), np.random.default_rng(7)
    objects = rng.standard_normal((n, 4))
    views = [objects @ weights.standard_normal((4, d)) for d in (20, 30, 40)]
    if curved:
        return [np.sin(2 * view) + 0.3 * rng.standard_normal(view.shape) for view in views]
    return [view + 2 * rng.standard_normal(view.shape) for view in views]


def linear_cca(views, new, *, size):
    scalers = [StandardScaler().fit(view) for view in views]
    scaled = [torch.from_numpy(s.transform(v)).float() for s, v in zip(scalers, views)]
    cca = LinearCCA(scaled, size=size, divisors=[torch.from_numpy(s.scale_).float() for s in scalers])
    return np.stack(cca([torch.from_numpy(s.transform(v)).float() for s, v in zip(scalers, new)]))


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_the_initial_network_is_linear_cca_of_the_rows(method):
    views, new = noisy_views(80), noisy_views(50, seed=1)
    model = MultiViewEmbedding(6, width=8, epochs=1, learning_rate=1e-12, random_state=0)
    points = getattr(model, method)(views).transform_views(new)
    np.testing.assert_allclose(points, linear_cca(views, new, size=6), atol=1e-3)


def test_few_rows_with_many_columns_are_not_worse_than_linear_cca():
    views, new = noisy_views(150), noisy_views(200, seed=1)
    trained = MultiViewEmbedding(8, random_state=0).fit(views).transform_views(new)
    score, baseline = (
        mean_reciprocal_rank(torch.from_numpy(points)) for points in (trained, linear_cca(views, new, size=8))
    )
    assert score > 0.95 * baseline > 0.1  # by chance about 0.03


def test_training_stops_early_and_improves_on_linear_cca_of_quadrants_of_digits():
    images = load_digits().images[:900]
    parts = [images[:, i : i + 4, j : j + 4].reshape(-1, 16) for i in (0, 4) for j in (0, 4)]
    views, new = [part[:600] for part in parts], [part[600:] for part in parts]
    options = {
        "n_components": 8,
        "width": 64,
        "epochs": 100,
        "learning_rate": 4e-3,
        "loss": "infonce-pwe",
        "random_state": 0,
    }
    model = MultiViewEmbedding(**options).fit(views)
    assert 0 < model.best_epoch_ < len(model.loss_curve_) < 100
    start = MultiViewEmbedding(**{**options, "epochs": 1, "learning_rate": 1e-12}).fit(views)
    assert start.best_epoch_ == 0
    assert model.score(new) > 1.5 * start.score(new)
    full = MultiViewEmbedding(**{**options, "epochs": 3}, validation_fraction=0).fit(views)
    assert full.best_epoch_ == len(full.loss_curve_) == 3


def test_the_result_is_the_average_closest_to_linear_cca_within_one_standard_error(monkeypatch):
    stopped = []

    class Recorded(fitting.EarlyStopping):
        def restore(self):
            super().restore()
            stopped.append(self)

    monkeypatch.setattr("m3g.sklearn.embedding.EarlyStopping", Recorded)
    MultiViewEmbedding(8, width=32, epochs=60, loss="infonce-pwe", random_state=0).fit(noisy_views(200, curved=True))
    [stopping] = stopped
    kept = stopping.best
    stopping.net.float()

    def contributions(share):
        return stopping._contributions(
            {name: torch.lerp(part, kept.weights[name], share) for name, part in kept.start.items()}
        )

    assert 0 < kept.share < 1
    assert not_worse(contributions(kept.share), contributions(1.0))
    assert kept.share == 0.1 or not not_worse(contributions(kept.share - 0.1), contributions(1.0))


def test_held_out_rows_have_partners():
    mask = torch.ones(2, 200, dtype=torch.bool)
    mask[1, 50:] = False
    rows = fitting.Rows([torch.arange(200.0).unsqueeze(1), torch.zeros(200, 3)], mask)
    training, held_out = fitting.split(rows, 0.1)
    assert training.num_rows() == 180
    assert bool(held_out.mask.all())
    both = torch.cat([training.views[0], held_out.views[0]]).flatten()
    assert both.sort().values.tolist() == list(range(200))


def test_few_rows_are_not_held_out():
    rows = fitting.Rows([torch.zeros(94, 1)] * 2, torch.ones(2, 94, dtype=torch.bool))
    assert fitting.split(rows, 0.1) == (rows, None)
    assert fitting.split(rows, 0.5)[1].num_rows() == 47


def test_without_complete_rows_the_initial_network_is_random():
    views = [np.random.default_rng(l).standard_normal((40, 5)) for l in range(2)]
    views[0][:20], views[1][20:] = np.nan, np.nan
    with pytest.raises(ValueError, match="at least"):
        LinearCCA(
            [torch.zeros(40, 5)] * 2, torch.arange(40).lt(20).repeat(2, 1) ^ torch.tensor([[True], [False]]), size=2
        )
    assert np.isfinite(MultiViewEmbedding(2, width=8, epochs=2, random_state=0).fit_transform(views)).all()


def test_by_default_training_takes_six_hundred_steps():
    views = noisy_views(90)
    model = MultiViewEmbedding(2, width=4, depth=1, loss="infonce-pwe", random_state=0).fit(views)
    assert len(model.loss_curve_) == 600
