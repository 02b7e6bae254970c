"""One table whose columns contain the views."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from m3g.sklearn import ColumnBlockEmbedding, MultiViewEmbedding

QUICK = {"n_components": 4, "width": 16, "epochs": 3, "random_state": 0}


def test_columns_are_selected_by_name_slice_or_selector(frames):
    wide = pd.concat([pd.Series("text", frames["sound"].index, name="note"), *frames.values()], axis=1)
    expected = MultiViewEmbedding(**QUICK).fit_transform(frames)
    blocks = {"sound": list(frames["sound"]), "shape": make_column_selector("^shape"), "colour": slice("colour0", None)}
    model = ColumnBlockEmbedding(blocks, **QUICK)
    np.testing.assert_allclose(model.fit_transform(wide), expected)  # the column of text is not used
    np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).transform(wide), expected)
    with pytest.raises(ValueError, match="feature names"):
        model.transform(wide[wide.columns[::-1]])


def test_blocks_follow_a_column_transformer(frames):
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


def test_a_block_of_unknown_columns_is_rejected(frames):
    with pytest.raises(ValueError, match="sound9"):
        ColumnBlockEmbedding({"a": ["sound9"], "b": ["sound0"]}, **QUICK).fit(frames["sound"])


# MultiViewEmbedding requires a list of arrays, but all of these checks pass a single array X.
@parametrize_with_checks([ColumnBlockEmbedding(n_components=2, width=8, epochs=2, random_state=0)])
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


def test_blocks_and_a_list_of_views_give_equal_results(views):
    a = ColumnBlockEmbedding([5, 6, 7], **QUICK).fit_transform(np.hstack(views))
    assert np.array_equal(a, MultiViewEmbedding(**QUICK).fit_transform(views))


@pytest.mark.parametrize("blocks", [1, 30, [5, 5], [18]])
def test_wrong_blocks_are_rejected(views, blocks):
    with pytest.raises(ValueError, match="blocks must be"):
        ColumnBlockEmbedding(blocks, **QUICK).fit(np.hstack(views))
