"""The embedding of k tables: training, missing views, scores, partial fits."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from m3g.sklearn import ColumnBlockEmbedding, MultiViewEmbedding, Views

QUICK = {"n_components": 4, "width": 16, "epochs": 3, "random_state": 0}


def test_views_of_an_object_are_aligned(views):
    model = MultiViewEmbedding(n_components=8, epochs=40, random_state=0).fit(views)
    units = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in model.transform_views(views)]
    nearest = (units[0] @ units[1].T).argmax(1)
    assert (nearest == np.arange(90)).mean() > 0.5  # chance is 1 in 90
    assert model.loss_curve_[-1] < model.loss_curve_[0]


def test_the_same_seed_gives_the_same_result_without_side_effects(views):
    state = torch.random.get_rng_state()
    first = MultiViewEmbedding(**QUICK).fit_transform(views)
    assert torch.equal(state, torch.random.get_rng_state())
    torch.rand(3)
    model = MultiViewEmbedding(**QUICK)
    assert np.array_equal(first, model.fit_transform(views))
    assert np.array_equal(first, pickle.loads(pickle.dumps(model)).transform(views))
    assert not np.allclose(first, clone(model).set_params(random_state=1).fit_transform(views))


def test_missing_views_are_accepted(views):
    model = MultiViewEmbedding(**QUICK).fit(views)
    missing = [np.full_like(views[0], np.nan), *views[1:]]
    assert np.array_equal(model.transform([None, *views[1:]]), model.transform(missing))
    one = model.transform_views([None, views[1], None])
    assert np.isnan(one[[0, 2]]).all()
    unit = one[1] / np.linalg.norm(one[1], axis=1, keepdims=True)
    assert np.allclose(model.transform([None, views[1], None]), unit)


def test_training_rows_may_have_missing_views(views):
    views[0][:40] = np.nan
    views[2][30:60] = np.nan
    assert np.isfinite(MultiViewEmbedding(**QUICK).fit_transform(views)).all()


@pytest.mark.parametrize("loss", ["infonce-pwe", "mmcr", "vicreg"])
def test_other_losses_are_accepted(views, loss):
    assert MultiViewEmbedding(**QUICK, loss=loss).fit_transform(views).shape == (90, 4)


def test_more_views_than_an_exact_solve_supports_are_accepted(views):
    assert MultiViewEmbedding(**QUICK).fit_transform([*views, *views]).shape == (90, 4)


def test_pipelines_and_searches_run_in_several_processes(views):
    X, y = np.hstack(views), (views[0][:, 0] > 0).astype(int)
    model = make_pipeline(ColumnBlockEmbedding([5, 6, 7], **QUICK), LogisticRegression())
    serial, parallel = (cross_val_score(model, X, y, cv=3, n_jobs=jobs) for jobs in (1, 2))
    assert np.array_equal(serial, parallel)
    grid = {"columnblockembedding__loss": ["m3g", "infonce-pwe"], "columnblockembedding__n_components": [2, 4]}
    search = GridSearchCV(model, grid, cv=2).fit(X, y)
    assert set(search.best_params_) == set(grid)
    assert list(model.fit(X, y)[0].get_feature_names_out())[:1] == ["columnblockembedding0"]


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({}, lambda v: v[:1], "X must have k >= 2 views and no None when fitting"),
        ({}, lambda v: [None, *v[1:]], "X must have k >= 2 views and no None when fitting"),
        ({}, lambda v: v[0], "X must be a list or a dict of k arrays"),
        ({}, lambda v: [None, None], "X must have at least one view"),
        ({}, lambda v: [v[0][:5], v[1]], "X must have the same number of rows in every view"),
        ({}, lambda v: [np.where(v[0] == v[0][3, 2], np.nan, v[0]), v[1]], "some NaN in row 3 of view 0"),
        ({}, lambda v: [np.full_like(v[0], np.nan), v[1]], "at least one row of every view"),
        ({"loss": "nonsense"}, lambda v: v, "must be one of"),
        ({"loss": "byol-pwe"}, lambda v: v, "loss must be one that works without a teacher"),
        ({"n_components": 0}, lambda v: v, "n_components must be"),
        ({"epochs": 0}, lambda v: v, "epochs must be"),
        ({"validation_fraction": 1.0}, lambda v: v, "validation_fraction must be a number from 0 .* got 1.0"),
        ({"validation_fraction": "0.1"}, lambda v: v, "validation_fraction must be a number from 0 .* got '0.1'"),
        ({"loss_options": {"epsilon": -1}}, lambda v: v, "epsilon must be"),
    ],
)
def test_wrong_arguments_are_rejected(views, options, change, message):
    with pytest.raises(ValueError, match=message):
        MultiViewEmbedding(**{**QUICK, **options}).fit(change(views))


def test_the_score_is_the_recall_between_views(frames):
    views = [frame.to_numpy() for frame in frames.values()]
    model = MultiViewEmbedding(8, epochs=20, random_state=0).fit(views)
    points = torch.from_numpy(model.transform_views(views))
    recall = [
        (cosines(points[l], points[m]).argmax(1) == torch.arange(90)).double().mean()
        for l in range(3)
        for m in range(3)
        if l != m
    ]
    assert model.score(views) == pytest.approx(float(np.mean(recall)))
    assert model.score(views) > 0.5
    assert model.score([views[0], views[1][::-1], views[2]]) < model.score(views)


def cosines(a, b):
    return torch.nn.functional.normalize(a, dim=1) @ torch.nn.functional.normalize(b, dim=1).T


def test_partial_fit_learns_from_parts_and_accepts_missing_views(frames):
    frames = {name: frame.abs() for name, frame in frames.items()}  # without signs, linear CCA is a poor initialisation
    options = {**QUICK, "n_components": 8, "width": 64, "batch_size": 30, "learning_rate": 5e-3}
    model, before = MultiViewEmbedding(**options), 0.0
    views = Views(frames)
    for _ in range(12):
        for start in (0, 30, 60):
            model.partial_fit(views[np.arange(start, start + 30)])
        before = before or model.score(frames)
    assert len(model.loss_curve_) == 36
    assert model.score(frames) > 2 * before
    assert np.allclose(model._scalers[0].mean_, frames["sound"].mean())
    assert np.isfinite(
        model.partial_fit({"sound": frames["sound"], "colour": frames["colour"]}).transform(frames)
    ).all()


def test_partial_fit_continues_a_fit_also_after_a_pickle(frames):
    model = MultiViewEmbedding(**QUICK).fit(frames)
    first = model.transform(frames)
    other = pickle.loads(pickle.dumps(model))
    assert np.array_equal(model.partial_fit(frames).transform(frames), other.partial_fit(frames).transform(frames))
    assert not np.allclose(first, model.transform(frames))
    assert len(model.loss_curve_) == 4
    assert np.array_equal(model.fit(frames).transform(frames), first)  # fit starts anew
