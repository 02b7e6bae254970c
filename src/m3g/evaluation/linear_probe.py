"""The paper's linear probe: a linear classifier on frozen features, trained by SGD."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from m3g.evaluation.probes import check_train_and_test

RATES = (0.01, 0.001)  # the learning rates of the paper
FeatureBatch = tuple[Tensor, Tensor]  # features (b, d) and row numbers (b,)


class ProbeResult(NamedTuple):
    """Test accuracy of a probe, and its learning rate: of several given ones, the best on held-out training rows."""

    accuracy: float
    learning_rate: float


def linear_probe(
    train: Tensor,
    train_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    *,
    learning_rates: Sequence[float] = RATES,
    epochs: int = 100,
    batch_size: int = 1024,
    seed: int = 0,
) -> ProbeResult:
    """Train a linear classifier on frozen features (n, d) with the paper's protocol; return its test accuracy and rate.

    The optimiser is SGD with momentum 0.9 and cosine decay to 0, without weight decay. Initial weights are drawn from
    N(0, 0.01²). Features are standardised with the statistics of the training rows. The learning rate is chosen on a
    held-out tenth of the training rows, unless only one is given. In both cases, the final probe is trained on all
    training rows. Test rows are not used for any choice.

    Example:
        >>> x = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
        >>> linear_probe(x, (x[:, 0] > 0).long(), x, (x[:, 0] > 0).long()).accuracy > 0.9
        True
    """
    check_train_and_test(train, train_labels, test, test_labels)
    rows = _Rows(train, train_labels)

    def fit(chosen: Tensor, rate: float) -> _Classifier:
        x, y = rows.scaled(train[chosen]), rows.codes[chosen]
        random = torch.Generator().manual_seed(seed)
        steps = -(-len(x) // batch_size)
        classifier = _Classifier(rows.initial_weight(random), rate, steps=epochs * steps)
        for _ in range(epochs):
            for batch in torch.randperm(len(x), generator=random).to(x.device).split(batch_size):
                classifier.step(x[batch], y[batch])
        return classifier

    best = learning_rates[0]
    if len(learning_rates) > 1:
        held_out, fitted = rows.divided(seed)
        scores = [rows.accuracy(fit(fitted, rate), held_out) for rate in learning_rates]
        best = learning_rates[scores.index(max(scores))]
    return ProbeResult(rows.test(fit(torch.arange(len(train)), best), test, test_labels), best)


def augmented_probe(
    batches: Callable[[int], Iterable[FeatureBatch]],
    train: Tensor,
    train_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    *,
    steps: int,
    learning_rates: Sequence[float] = RATES,
    epochs: int = 100,
    seed: int = 0,
) -> ProbeResult:
    """Train a linear classifier on features that change in every epoch; return its test accuracy and learning rate.

    The protocol is that of `linear_probe`. In the paper, training images are cropped and flipped at random, so their
    features are recomputed in every epoch. Because this is expensive, all classifiers are trained in the same pass: for
    every learning rate, one on all rows and one without a held-out tenth. The rate is chosen on the held-out rows.

    Args:
        batches: maps an epoch to its batches: features (b, d) and row numbers (b,).
        train, train_labels: features (n, d) and labels (n,) of the training rows without augmentation. They are used
            to standardise the features and to select the learning rate.
        test, test_labels: features and labels of the test rows.
        steps: number of batches of an epoch.
        learning_rates, epochs, seed: as in `linear_probe`.
    """
    check_train_and_test(train, train_labels, test, test_labels)
    rows = _Rows(train, train_labels)
    held_out, fitted = rows.divided(seed)
    weight, total = rows.initial_weight(torch.Generator().manual_seed(seed)), epochs * steps
    selecting, final = ([_Classifier(weight, rate, steps=total) for rate in learning_rates] for _ in range(2))
    is_fitted = torch.zeros(len(train), dtype=torch.bool, device=train.device)
    is_fitted[fitted] = True
    for epoch in range(epochs):
        for features, index in batches(epoch):
            x, y, kept = rows.scaled(features.to(train)), rows.codes[index], is_fitted[index]
            for classifier in final:
                classifier.step(x, y)
            for classifier in selecting:
                classifier.step(x[kept], y[kept])
    scores = [rows.accuracy(classifier, held_out) for classifier in selecting]
    best = scores.index(max(scores))
    return ProbeResult(rows.test(final[best], test, test_labels), learning_rates[best])


class _Rows:
    """Training rows: features, the mean and divisor that standardise them, and class codes."""

    def __init__(self, features: Tensor, labels: Tensor) -> None:
        self.classes, self.codes = torch.unique(labels, return_inverse=True)
        deviation = features.std(0, correction=0)
        self.mean, self.divisor = features.mean(0), torch.where(deviation > 0, deviation, 1.0)
        self.features = features

    def scaled(self, features: Tensor) -> Tensor:
        return (features - self.mean) / self.divisor

    def divided(self, seed: int) -> tuple[Tensor, Tensor]:
        """Return a random tenth of the rows and the other rows."""
        order = torch.randperm(len(self.codes), generator=torch.Generator().manual_seed(seed))
        held_out, fitted = order[::10], torch.cat([order[start::10] for start in range(1, 10)])
        if len(fitted) == 0:
            raise ValueError(f"train must have at least 2 rows to choose a learning rate, got {len(self.codes)}.")
        return held_out, fitted

    def initial_weight(self, random: torch.Generator) -> Tensor:
        shape = len(self.classes), self.features.shape[1]
        return torch.randn(shape, generator=random).to(self.features) * 0.01

    def accuracy(self, classifier: _Classifier, chosen: Tensor) -> float:
        predicted = classifier.predict(self.scaled(self.features[chosen]))
        return float((predicted == self.codes[chosen]).float().mean())

    def test(self, classifier: _Classifier, features: Tensor, labels: Tensor) -> float:
        return float((self.classes[classifier.predict(self.scaled(features))] == labels).float().mean())


class _Classifier:
    """Linear classifier and its optimiser: SGD with momentum 0.9 and cosine decay of the learning rate to 0."""

    def __init__(self, weight: Tensor, rate: float, *, steps: int) -> None:
        self.weight, self.bias = weight.clone().requires_grad_(), weight.new_zeros(len(weight)).requires_grad_()
        self.optimizer = torch.optim.SGD([self.weight, self.bias], lr=rate, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=steps)

    def step(self, x: Tensor, y: Tensor) -> None:
        """Take a step on a batch of standardised features (b, d) and class codes (b,).

        An empty batch does not change the weights, but counts as a step of the schedule.
        """
        self.optimizer.zero_grad()
        if len(x):
            with torch.enable_grad():
                cross_entropy(linear(x, self.weight, self.bias), y).backward()
        self.optimizer.step()
        self.schedule.step()

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias).argmax(1)
