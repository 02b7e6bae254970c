"""Scikit-learn estimators that map k views to one representation.

`MultiViewEmbedding` accepts a list or a dict of k arrays or DataFrames. For `GridSearchCV` and `cross_val_score`, they
must be in a `Views` container, which is split by rows. `ColumnBlockEmbedding` accepts one table whose columns contain
the views, for `Pipeline`.
"""

from m3g.sklearn.blocks import ColumnBlockEmbedding
from m3g.sklearn.embedding import MultiViewEmbedding
from m3g.sklearn.views import Views

__all__ = ["ColumnBlockEmbedding", "MultiViewEmbedding", "Views"]
