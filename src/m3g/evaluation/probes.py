"""Accuracy of simple classifiers on frozen features: linear probes, nearest neighbours, transfer between views."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks
from m3g.evaluation.embedded import Embedded

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)  # of the ridge penalty, per training row


class ProbeResult(NamedTuple):
    """Test accuracy of a probe, and the learning rate chosen on held-out training rows."""

    accuracy: float
    learning_rate: float


def _check_train_and_test(train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor) -> None:
    _check_rows("train", train, train_labels)
    _check_rows("test", test, test_labels)
    if train.shape[1] != test.shape[1]:
        raise ValueError(f"test must have {train.shape[1]} features like train, got {test.shape[1]}.")


def _check_rows(name: str, features: Tensor, labels: Tensor) -> None:
    """Reject features that are not (n, d) and finite, and labels that are not (n,)."""
    if features.ndim != 2 or len(features) == 0:
        raise ValueError(f"{name} must be features of shape (n, d), got {_checks.shape_of(features)}.")
    if labels.shape != features.shape[:1]:
        raise ValueError(
            f"{name}_labels must be {len(features)} labels, one per row of {name}, "
            f"got shape {_checks.shape_of(labels)}."
        )
    _checks.finite_tensor(name, features)


def linear_probe(
    train: Tensor,
    train_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    *,
    learning_rates: Sequence[float] = (0.01, 0.001),
    epochs: int = 100,
    batch_size: int = 1024,
    seed: int = 0,
) -> ProbeResult:
    """Return the test accuracy of a linear classifier on frozen features (n, d), trained with the paper's protocol.

    The optimiser is SGD with momentum 0.9 and cosine decay to 0, without weight decay. Initial weights are drawn from
    N(0, 0.01²). Features are standardised with the statistics of the training rows. The learning rate is chosen on a
    held-out tenth of the training rows; the probe is then trained on all of them. Test rows are not used for any
    choice.

    Example:
        >>> x = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
        >>> linear_probe(x, (x[:, 0] > 0).long(), x, (x[:, 0] > 0).long()).accuracy > 0.9
        True
    """
    _check_train_and_test(train, train_labels, test, test_labels)
    classes, codes = torch.unique(train_labels, return_inverse=True)
    mean, deviation = train.mean(0), train.std(0, correction=0)
    train, test = ((x - mean) / torch.where(deviation > 0, deviation, 1.0) for x in (train, test))
    fit = partial(_fit, num_classes=len(classes), epochs=epochs, batch_size=batch_size, seed=seed)
    best = learning_rates[0]
    if len(learning_rates) > 1:
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
        held_out, fitted = order[::10], torch.cat([order[start::10] for start in range(1, 10)])
        if len(fitted) == 0:
            raise ValueError(f"train must have at least 2 rows to choose a learning rate, got {len(train)}.")
        scores = []
        for rate in learning_rates:
            layer = fit(train[fitted], codes[fitted], rate=rate)
            scores.append(float((layer(train[held_out]).argmax(1) == codes[held_out]).float().mean()))
        best = learning_rates[scores.index(max(scores))]
    layer = fit(train, codes, rate=best)
    with torch.no_grad():
        predicted = classes[layer(test).argmax(1)]
    return ProbeResult(float((predicted == test_labels).float().mean()), best)


def _fit(
    x: Tensor, y: Tensor, *, num_classes: int, rate: float, epochs: int, batch_size: int, seed: int
) -> torch.nn.Linear:
    """Return a linear classifier trained by SGD."""
    random = torch.Generator().manual_seed(seed)
    layer = torch.nn.utils.skip_init(torch.nn.Linear, x.shape[1], num_classes, dtype=x.dtype).to(x.device)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=random) * 0.01)
        layer.bias.zero_()
    steps = -(-len(x) // batch_size)
    optimizer = torch.optim.SGD(layer.parameters(), lr=rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs * steps)
    with torch.enable_grad():
        for _ in range(epochs):
            for rows in torch.randperm(len(x), generator=random).to(x.device).split(batch_size):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(layer(x[rows]), y[rows]).backward()
                optimizer.step()
                schedule.step()
    fitted: torch.nn.Linear = layer.requires_grad_(False)
    return fitted


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
        _check_rows("train", features, labels)
        _checks.extra("sklearn", "train")
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        if len(torch.unique(labels)) < 2:
            raise ValueError("train_labels must have at least 2 classes, got 1.")
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
        _check_rows("test", features, labels)
        width = self.model.n_features_in_
        if features.shape[1] != width:
            raise ValueError(f"test must have {width} features like train, got {features.shape[1]}.")
        return _correct(self.model.predict(features.to(self.dtype).cpu().numpy()), labels)

    def accuracy(self, features: Tensor, labels: Tensor) -> float:
        return float(self.correct(features, labels).mean())


def _correct(predicted: np.ndarray, labels: Tensor) -> Tensor:
    return torch.from_numpy(predicted == labels.cpu().numpy()).double()


def quick_probe(train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor) -> float:
    """Return the accuracy of logistic regression (`Probe`) on features (n, d)."""
    return Probe(train, train_labels).accuracy(test, test_labels)


def knn_accuracy(
    train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, *, neighbours: int = 5
) -> float:
    """Return the accuracy of a majority vote among the `neighbours` training rows with the largest cosine."""
    return float(knn_rows(train, train_labels, test, test_labels, neighbours=neighbours).mean())


def knn_rows(train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, *, neighbours: int = 5) -> Tensor:
    """Return 1 for each test row that `knn_accuracy` counts as correct and 0 for the others: (n,)."""
    _check_train_and_test(train, train_labels, test, test_labels)
    if not 1 <= neighbours <= len(train):
        raise ValueError(f"neighbours must be a number from 1 to {len(train)} (training rows), got {neighbours}.")
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
        raise ValueError("train and test must have embeddings (k, n, d) with the same k, got others.")
    if train.labels is None or test.labels is None:
        raise ValueError("train and test must have labels, got none.")
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
