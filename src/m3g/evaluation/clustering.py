"""Agreement of k-means clusters of the embeddings with the classes."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from torch import Tensor

from m3g import _checks


class Clustering(NamedTuple):
    """Agreement of clusters with classes.

    Attributes:
        nmi: normalised mutual information.
        ari: adjusted Rand index.
        accuracy: accuracy under the best assignment of clusters to classes.
    """

    nmi: float
    ari: float
    accuracy: float


def clustering(features: Tensor, labels: Tensor, *, seed: int = 0) -> Clustering:
    """Cluster features (n, d) by k-means, with as many clusters as classes, and compare clusters with labels (n,).

    k-means is run three times, and the clusters of lowest within-cluster variance are used.

    Example:
        >>> import torch
        >>> labels = torch.arange(60) % 3
        >>> clustering(torch.eye(3)[labels], labels)
        Clustering(nmi=1.0, ari=1.0, accuracy=1.0)
    """
    _checks.finite_tensor("features", features)
    truth = labels.cpu().numpy()
    model = _checks.extra("sklearn.cluster", "train").KMeans(len(np.unique(truth)), n_init=3, random_state=seed)
    with warnings.catch_warnings():
        # Collapsed embeddings have fewer distinct points than clusters; the scores show the collapse.
        warnings.simplefilter("ignore", _checks.extra("sklearn.exceptions", "train").ConvergenceWarning)
        clusters = model.fit_predict(features.detach().cpu().double().numpy())
    return agreement(clusters, truth)


def agreement(clusters: np.ndarray, classes: np.ndarray) -> Clustering:
    """Return the three scores of a clustering (n,) against the classes (n,).

    Example:
        >>> agreement(np.array([1, 1, 0, 0]), np.array([0, 0, 1, 1])).accuracy
        1.0
    """
    metrics = _checks.extra("sklearn.metrics", "train")
    table = metrics.cluster.contingency_matrix(classes, clusters)
    rows, columns = _checks.extra("scipy.optimize", "train").linear_sum_assignment(-table)
    return Clustering(
        float(metrics.normalized_mutual_info_score(classes, clusters)),
        float(metrics.adjusted_rand_score(classes, clusters)),
        float(table[rows, columns].sum() / len(classes)),
    )
