"""The estimators of m3g.sklearn with DataFrames: names of views and columns, set_output, partial_fit."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from m3g.sklearn import ColumnBlockEmbedding, MultiViewEmbedding, Views

QUICK = {"n_components": 4, "width": 16, "epochs": 3, "random_state": 0}


@pytest.fixture
def frames():
    """Three views of 90 objects with an index, and columns named after the view."""
    rng = np.random.default_rng(0)
    objects, index = rng.standard_normal((90, 4)), [f"object{i}" for i in range(90)]
    return {
        name: pd.DataFrame(objects @ rng.standard_normal((4, d)), index, [f"{name}{j}" for j in range(d)])
        for name, d in (("sound", 5), ("shape", 6), ("colour", 7))
    }


def test_a_dict_of_frames_is_the_list_of_their_arrays(frames):
    named, listed = MultiViewEmbedding(**QUICK), MultiViewEmbedding(**QUICK)
    found = named.fit_transform(frames)
    assert np.array_equal(found, listed.fit_transform([frame.to_numpy() for frame in frames.values()]))
    assert named.view_names_ == ["sound", "shape", "colour"]
    assert named.feature_names_[1] == list(frames["shape"])
    turned = dict(reversed(frames.items()))  # the order of a dict does not matter
    assert np.array_equal(found, named.transform(turned))


def test_a_view_that_is_not_in_the_dict_is_missing(frames):
    model = MultiViewEmbedding(**QUICK).fit(frames)
    alone = model.transform({"shape": frames["shape"]})
    assert np.array_equal(alone, model.transform([None, frames["shape"], None]))
    assert np.isnan(model.transform_views({"shape": frames["shape"]})[[0, 2]]).all()


def test_rows_that_a_reindexed_view_lacks_are_missing(frames):
    every = frames["sound"].index
    frames["shape"] = frames["shape"].iloc[20:].reindex(every)
    model = MultiViewEmbedding(**QUICK).fit(frames)
    without = {name: frame.iloc[:20] for name, frame in frames.items() if name != "shape"}
    assert np.allclose(model.transform(frames)[:20], model.transform(without))


@pytest.mark.parametrize("everywhere", [False, True])
def test_pandas_output_has_the_index_of_the_views_and_names(frames, everywhere):
    model = MultiViewEmbedding(**QUICK)
    if everywhere:
        with sklearn.config_context(transform_output="pandas"):
            found = model.fit_transform(frames)
    else:
        found = model.set_output(transform="pandas").fit_transform(frames)
    assert list(found.columns) == list(model.get_feature_names_out())
    assert found.index.equals(frames["sound"].index)
    assert np.array_equal(found, clone(model).set_output(transform="default").fit_transform(frames))
    block = ColumnBlockEmbedding({"a": slice(0, 5), "b": slice(5, 18)}, **QUICK).set_output(transform="pandas")
    wide = pd.concat(list(frames.values()), axis=1)
    assert block.fit_transform(wide).index.equals(wide.index)


def test_columns_by_name_slice_and_selector_are_the_views(frames):
    wide = pd.concat([pd.Series("text", frames["sound"].index, name="note"), *frames.values()], axis=1)
    wanted = MultiViewEmbedding(**QUICK).fit_transform(frames)
    blocks = {"sound": list(frames["sound"]), "shape": make_column_selector("^shape"), "colour": slice("colour0", None)}
    model = ColumnBlockEmbedding(blocks, **QUICK)
    np.testing.assert_allclose(model.fit_transform(wide), wanted)  # the column of text is not used
    np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).transform(wide), wanted)
    with pytest.raises(ValueError, match="feature names"):
        model.transform(wide[wide.columns[::-1]])


def test_it_follows_a_column_transformer(frames):
    wide = pd.concat(frames.values(), axis=1)
    wide["kind"] = np.where(wide["sound0"] > 0, "high", "low")
    y = (wide["shape0"] > 0).to_numpy()
    prepare = ColumnTransformer(
        [
            ("numbers", StandardScaler(), make_column_selector(dtype_include="number")),
            ("kind", OneHotEncoder(sparse_output=False), ["kind"]),
        ],
    ).set_output(transform="pandas")
    blocks = {"numbers": make_column_selector("^numbers__"), "kind": make_column_selector("^kind__")}
    model = make_pipeline(prepare, ColumnBlockEmbedding(blocks, **QUICK), LogisticRegression())
    search = GridSearchCV(model, {"columnblockembedding__n_components": [2, 4]}, cv=2, error_score="raise").fit(wide, y)
    assert search.best_score_ > 0.6


def test_views_of_frames_are_split_by_rows(frames):
    views = Views(frames)
    model = MultiViewEmbedding(**QUICK).set_output(transform="pandas").fit(views[np.arange(30, 90)])
    assert list(model.transform(views[[3, 1]]).index) == ["object3", "object1"]


def test_partial_fit_learns_from_parts_that_lack_views(frames):
    options = {**QUICK, "n_components": 8, "batch_size": 30, "learning_rate": 5e-3}
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda f: {"shpe": f["shape"]},
            "the views of X must be among sound, shape, colour, got shpe: did you mean shape",
        ),
        (lambda f: {"shape": f["shape"][f["shape"].columns[::-1]]}, "columns of fit, in their order, in view 'shape'"),
        (lambda f: {"shape": f["shape"].iloc[:, 1:]}, "6 features in view 'shape', got 5"),
        (
            lambda f: {**f, "shape": f["shape"].iloc[::-1]},
            "same index in every view, got another one in view 'shape'",
        ),
        (lambda f: [f["shape"]], "X must be 3 arrays, one per view"),
        (lambda f: {}, "at least one view"),
    ],
)
def test_wrong_views_are_rejected(frames, change, message):
    model = MultiViewEmbedding(**QUICK).fit(frames)
    for method in (model.transform, model.partial_fit):
        with pytest.raises(ValueError, match=message):
            method(change(frames))


def test_a_dict_is_rejected_after_a_fit_on_a_list(frames):
    model = MultiViewEmbedding(**QUICK).fit(list(frames.values()))
    with pytest.raises(ValueError, match="X must be a list of k arrays, as in fit, got a dict"):
        model.transform(frames)


def test_a_block_of_unknown_columns_is_rejected(frames):
    with pytest.raises(ValueError, match="sound9"):
        ColumnBlockEmbedding({"a": ["sound9"], "b": ["sound0"]}, **QUICK).fit(frames["sound"])
