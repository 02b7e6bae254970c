"""Views as lists, dicts and DataFrames: names of views and columns, set_output, splits by rows."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from m3g.sklearn import ColumnBlockEmbedding, MultiViewEmbedding, Views

QUICK = {"n_components": 4, "width": 16, "epochs": 3, "random_state": 0}


def test_a_dict_of_frames_and_a_list_of_their_arrays_give_equal_results(frames):
    named, listed = MultiViewEmbedding(**QUICK), MultiViewEmbedding(**QUICK)
    embedded = named.fit_transform(frames)
    assert np.array_equal(embedded, listed.fit_transform([frame.to_numpy() for frame in frames.values()]))
    assert named.view_names_ == ["sound", "shape", "colour"]
    assert named.feature_names_[1] == list(frames["shape"])
    reordered = dict(reversed(frames.items()))  # the order of a dict does not matter
    assert np.array_equal(embedded, named.transform(reordered))


def test_a_view_that_is_not_in_the_dict_is_missing(frames):
    model = MultiViewEmbedding(**QUICK).fit(frames)
    alone = model.transform({"shape": frames["shape"]})
    assert np.array_equal(alone, model.transform([None, frames["shape"], None]))
    assert np.isnan(model.transform_views({"shape": frames["shape"]})[[0, 2]]).all()


def test_rows_of_nan_in_a_reindexed_view_are_missing(frames):
    every = frames["sound"].index
    frames["shape"] = frames["shape"].iloc[20:].reindex(every)
    model = MultiViewEmbedding(**QUICK).fit(frames)
    without = {name: frame.iloc[:20] for name, frame in frames.items() if name != "shape"}
    assert np.allclose(model.transform(frames)[:20], model.transform(without))


@pytest.mark.parametrize("globally", [False, True])
def test_pandas_output_has_the_index_of_the_views_and_names(frames, globally):
    model = MultiViewEmbedding(**QUICK)
    if globally:
        with sklearn.config_context(transform_output="pandas"):
            output = model.fit_transform(frames)
    else:
        output = model.set_output(transform="pandas").fit_transform(frames)
    assert list(output.columns) == list(model.get_feature_names_out())
    assert output.index.equals(frames["sound"].index)
    assert np.array_equal(output, clone(model).set_output(transform="default").fit_transform(frames))
    block = ColumnBlockEmbedding({"a": slice(0, 5), "b": slice(5, 18)}, **QUICK).set_output(transform="pandas")
    wide = pd.concat(list(frames.values()), axis=1)
    assert block.fit_transform(wide).index.equals(wide.index)


def test_views_of_frames_are_split_by_rows(frames):
    views = Views(frames)
    model = MultiViewEmbedding(**QUICK).set_output(transform="pandas").fit(views[np.arange(30, 90)])
    assert list(model.transform(views[[3, 1]]).index) == ["object3", "object1"]


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
        (lambda f: [f["shape"]], "X must be 3 arrays, one per view, .* got 1: .* wrapped in m3g.sklearn.Views"),
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


def test_cross_validation_splits_the_rows_of_views(frames):
    views = Views(frames)
    model = MultiViewEmbedding(8, epochs=5, random_state=0)
    scores = cross_val_score(model, views, cv=3, error_score="raise")
    train, test = np.arange(30, 90), np.arange(30)
    assert scores[0] == clone(model).fit(views[train]).score(views[test])
    search = GridSearchCV(model, {"n_components": [1, 8]}, cv=3, error_score="raise").fit(views)
    assert search.best_params_ == {"n_components": 8}
    assert search.transform(views).shape == (90, 8)


def test_views_select_rows_and_keep_missing_views():
    views = Views([np.arange(6.0).reshape(3, 2), None])
    assert len(views) == 3
    assert views[[2, 0]].arrays[0].tolist() == [[4, 5], [0, 1]]
    assert views[1].arrays[0].tolist() == [[2, 3]]
    assert views[[0]].arrays[1] is None
    with pytest.raises(ValueError, match="X must have the same number of rows in every view"):
        Views([np.ones((3, 2)), np.ones((2, 2))])
    with pytest.raises(ValueError, match="X must have at least one view"):
        Views([None, None])
