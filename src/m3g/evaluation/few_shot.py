"""Few-shot probe of signals, modelled on the probe of the paper: accuracy with a few labels per class."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from m3g import _checks

SHOTS = (10, 50, 100, 1000)


class FewShot(NamedTuple):
    """Test scores of a few-shot probe.

    Attributes:
        balanced_accuracy: balanced accuracy, mean over draws of the labelled rows.
        deviation: standard deviation of the balanced accuracy over draws.
        accuracy: accuracy, mean over draws.
    """

    balanced_accuracy: float
    deviation: float
    accuracy: float


def most_shots(labels: Tensor) -> int:
    """Return the largest number of labels per class that leaves as many rows per class for early stopping."""
    return int(torch.unique(labels, return_counts=True)[1].min()) // 2


class ChannelProbe(nn.Module):
    """Linear classifier of a weighted sum of the channels: from `sum_l a_l x_l` (n, width) to logits (n, classes).

    It is initialised with equal channel weights and zero logits, because with few shots there are too few steps to
    correct a random initialisation.
    """

    def __init__(self, channels: int, width: int, classes: int) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.full((channels,), 1 / channels))
        self.weight = nn.Parameter(torch.zeros(classes, width))
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, features: Tensor) -> Tensor:
        return nn.functional.linear(torch.einsum("l,lnw->nw", self.mix, features), self.weight, self.bias)


def few_shot_probe(
    train: Sequence[Tensor] | Tensor,
    train_labels: Tensor,
    test: Sequence[Tensor] | Tensor,
    test_labels: Tensor,
    *,
    shots: int,
    draws: int = 5,
    epochs: int = 40,
    batch_size: int = 16,
    patience: int = 5,
    seed: int = 0,
) -> FewShot:
    """Return the test scores of a `ChannelProbe` trained with `shots` labels per class.

    The protocol is modelled on that of the paper, which follows Brüsch et al. (2023): `shots` rows per class for
    training, and as many held-out rows, whose loss determines early stopping; AdamW with learning rate 1e-3; evaluation
    on all test rows. Features are standardised with the statistics of the drawn training rows. Scores are averaged over
    `draws` draws.

    Args:
        train, test: features of the channels (k, n, width), of equal width.
        train_labels, test_labels: (n,).
        shots: labels per class; every class requires twice as many training rows.
        draws: number of draws of the labelled rows; a probe is trained on each.
        epochs: maximum number of epochs.
        batch_size: rows per step.
        patience: number of epochs without progress after which training stops.
        seed: seed of the draws.

    Example:
        >>> labels = torch.arange(60) % 3
        >>> channels = torch.eye(3)[labels].expand(2, 60, 3)
        >>> few_shot_probe(channels, labels, channels, labels, shots=10, draws=1).balanced_accuracy
        1.0

    Reference: Brüsch, Schmidt, Alstrøm, 2023 :cite:`bruesch2023`.
    """
    train, test = _channels("train", train), _channels("test", test)
    classes, codes = torch.unique(train_labels, return_inverse=True)
    if not 1 <= _checks.positive_int("shots", shots) <= most_shots(train_labels):
        raise ValueError(
            f"shots must be at most half of the rows of the rarest class, {most_shots(train_labels)}, got {shots}."
        )
    _checks.positive_int("draws", draws)
    metrics = _checks.extra("sklearn.metrics", "train")
    scores = []
    for draw in range(draws):
        random = torch.Generator().manual_seed(seed + draw)
        order = torch.randperm(len(codes), generator=random)
        drawn = torch.cat([order[codes[order] == c][: 2 * shots] for c in range(len(classes))])
        first = torch.arange(len(drawn)) % (2 * shots) < shots
        fitting, stopping = drawn[first], drawn[~first]
        mean, deviation = train[:, fitting].mean(1, keepdim=True), train[:, fitting].std(1, correction=0, keepdim=True)
        scaled_train, scaled_test = ((x - mean) / torch.where(deviation > 0, deviation, 1.0) for x in (train, test))
        probe = _fit(
            scaled_train[:, fitting], codes[fitting], scaled_train[:, stopping], codes[stopping], random,
            classes=len(classes), epochs=epochs, batch_size=batch_size, patience=patience,
        )  # fmt: skip
        with torch.no_grad():
            predicted = classes[probe(scaled_test).argmax(1)].numpy()
        truth = test_labels.cpu().numpy()
        with warnings.catch_warnings():  # the balanced accuracy is the mean over the classes of the test rows
            warnings.filterwarnings("ignore", "y_pred contains classes not in y_true")
            scores.append((metrics.balanced_accuracy_score(truth, predicted), metrics.accuracy_score(truth, predicted)))
    balanced, plain = torch.tensor(scores, dtype=torch.float64).T
    return FewShot(float(balanced.mean()), float(balanced.std(correction=0)), float(plain.mean()))


def _channels(name: str, features: Sequence[Tensor] | Tensor) -> Tensor:
    """Return the features of the channels, validated and stacked: (k, n, width)."""
    if len({tuple(part.shape) for part in features}) != 1 or features[0].ndim != 2:
        raise ValueError(
            f"{name} must have channels of one shape (n, width), got {[_checks.shape_of(part) for part in features]}."
        )
    stacked = features if isinstance(features, Tensor) else torch.stack(list(features))
    _checks.finite_tensor(name, stacked)
    return stacked.detach().float().cpu()


def _fit(
    x: Tensor, y: Tensor, held_x: Tensor, held_y: Tensor, random: torch.Generator,
    *, classes: int, epochs: int, batch_size: int, patience: int,
) -> ChannelProbe:  # fmt: skip
    """Return the probe of the epoch with the smallest loss on the held-out rows."""
    probe = ChannelProbe(len(x), x.shape[-1], classes)
    # Fused, because with many shots there are thousands of small steps.
    optimizer = torch.optim.AdamW(probe.parameters(), lr=1e-3, fused=True)
    best_loss, best_state, epochs_without_progress = float("inf"), probe.state_dict(), 0
    for _ in range(epochs):
        with torch.enable_grad():
            for rows in torch.randperm(len(y), generator=random).split(batch_size):
                optimizer.zero_grad()
                nn.functional.cross_entropy(probe(x[:, rows]), y[rows]).backward()
                optimizer.step()
        with torch.no_grad():
            loss = float(nn.functional.cross_entropy(probe(held_x), held_y))
        if loss < best_loss:
            best_loss, epochs_without_progress = loss, 0
            best_state = {name: value.clone() for name, value in probe.state_dict().items()}
        else:
            epochs_without_progress += 1
            if epochs_without_progress == patience:
                break
    probe.load_state_dict(best_state)
    return probe
