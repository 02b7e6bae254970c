"""Accuracy of simple classifiers on frozen features: linear probes, nearest neighbours, transfer between views."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks
from m3g.evaluation.embedded import Embedded

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)  # of the ridge penalty, per training row


def check_train_and_test(train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor) -> None:
    _check_rows(train, train_labels, names=("train", "train_labels"))
    _check_rows(test, test_labels, names=("test", "test_labels"))
    if train.shape[1] != test.shape[1]:
        raise ValueError(f"test must have {train.shape[1]} features, as many as train, got {test.shape[1]}.")


def _check_rows(features: Tensor, labels: Tensor, *, names: tuple[str, str] = ("features", "labels")) -> None:
    """Reject features that are not (n, d) and finite, and labels that are not (n,); `names` appear in the errors."""
    name, labels_name = names
    if features.ndim != 2 or len(features) == 0:
        raise ValueError(f"{name} must have shape (n, d) with n > 0, got shape {_checks.shape_of(features)}.")
    if labels.shape != features.shape[:1]:
        raise ValueError(
            f"{labels_name} must be {len(features)} labels, one per row of {name}, "
            f"got shape {_checks.shape_of(labels)}."
        )
    _checks.finite_tensor(name, features)


class Probe:
    """Linear classifier on standardised features, fitted by scikit-learn.

    Args:
        features: (n, d).
        labels: (n,), of at least 2 classes.
        kind: `"logistic"` for multinomial logistic regression, or `"ridge"` for ridge regression in closed form, with
            the penalty chosen by leave-one-out cross-validation.

    Example:
        >>> x, y = torch.eye(4).repeat(5, 1), torch.arange(4).repeat(5)
        >>> probe = Probe(x, y, kind="ridge")
        >>> probe.accuracy(x, y), probe.accuracy(-x, y)
        (1.0, 0.0)
    """

    def __init__(self, features: Tensor, labels: Tensor, *, kind: str = "logistic") -> None:
        _checks.one_of("kind", kind, ("logistic", "ridge"))
        _check_rows(features, labels)
        _checks.extra("sklearn", "train")
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        if len(torch.unique(labels)) < 2:
            raise ValueError("labels must have at least 2 classes, got 1.")
        if kind == "ridge":
            features = features.double()
            model = RidgeClassifierCV(alphas=[strength * len(features) for strength in STRENGTHS])
        else:
            model = LogisticRegression(max_iter=300)
        self.dtype = features.dtype
        self.model = make_pipeline(StandardScaler(), model)
        with warnings.catch_warnings():
            # Even if the optimum has not been reached, further steps would not change the accuracy noticeably.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model.fit(features.cpu().numpy(), labels.cpu().numpy())

    def correct(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return 1 where a row is classified correctly and 0 elsewhere: (n,)."""
        _check_rows(features, labels)
        width = self.model.n_features_in_
        if features.shape[1] != width:
            raise ValueError(f"features must have {width} columns, as in training, got {features.shape[1]}.")
        return _correct(self.model.predict(features.to(self.dtype).cpu().numpy()), labels)

    def accuracy(self, features: Tensor, labels: Tensor) -> float:
        return float(self.correct(features, labels).mean())


def _correct(predicted: np.ndarray, labels: Tensor) -> Tensor:
    return torch.from_numpy(predicted == labels.cpu().numpy()).double()


def quick_probe(train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor) -> float:
    """Return the accuracy on test features (n, d) of logistic regression (`Probe`) fitted to the training features."""
    check_train_and_test(train, train_labels, test, test_labels)
    return Probe(train, train_labels).accuracy(test, test_labels)


def knn_accuracy(
    train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, *, neighbours: int = 5
) -> float:
    """Return the accuracy of a majority vote among the `neighbours` training rows with the largest cosine."""
    return float(knn_rows(train, train_labels, test, test_labels, neighbours=neighbours).mean())


def knn_rows(train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, *, neighbours: int = 5) -> Tensor:
    """Return 1 for each test row that `knn_accuracy` counts as correct and 0 for the others: (n,)."""
    check_train_and_test(train, train_labels, test, test_labels)
    if not 1 <= neighbours <= len(train):
        raise ValueError(
            f"neighbours must be a number from 1 to {len(train)}, the number of training rows, got {neighbours}."
        )
    _checks.extra("sklearn", "train")
    from sklearn import config_context
    from sklearn.neighbors import KNeighborsClassifier

    model = KNeighborsClassifier(n_neighbors=neighbours, metric="cosine")
    model.fit(train.cpu().numpy(), train_labels.cpu().numpy())
    with config_context(working_memory=64):  # MiB of distances at a time; the default is 1024
        return _correct(model.predict(test.cpu().numpy()), test_labels)


def transfer_probe(train: Embedded, test: Embedded, *, kind: str = "logistic") -> Tensor:
    """Return the accuracy (k, k) of a `Probe` trained on view l (row) and tested, unchanged, on view m (column).

    Probes are fitted on the unit vectors of the embeddings. The diagonal is the ordinary probe of each view.
    """
    if train.embeddings is None or test.embeddings is None or len(train.embeddings) != len(test.embeddings):
        parts = (train.embeddings, test.embeddings)
        got = " and ".join("none" if part is None else f"shape {_checks.shape_of(part)}" for part in parts)
        raise ValueError(f"train and test must have embeddings (k, n, d) with the same k, got {got}.")
    if train.labels is None or test.labels is None:
        raise ValueError(f"train and test must have labels, got none in {'train' if train.labels is None else 'test'}.")
    train_units, test_units = normalize(train.embeddings, dim=-1), normalize(test.embeddings, dim=-1)
    k = len(train_units)
    matrix = torch.empty(k, k, dtype=torch.float64)
    for l in range(k):
        rows = train.present[l]
        probe = Probe(train_units[l][rows], train.labels[rows], kind=kind)
        for m in range(k):
            rows = test.present[m]
            matrix[l, m] = probe.accuracy(test_units[m][rows], test.labels[rows])
    return matrix
