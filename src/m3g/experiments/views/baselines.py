"""Baselines without a k-view loss: inputs, principal components, linear CCA of k views, and a supervised network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from m3g.data import ViewsData
from m3g.evaluation.canonical import canonical
from m3g.experiments.runner.references import train_with_linear_decay
from m3g.experiments.runner.stacked import StackedNet
from m3g.training import build_data, build_module
from m3g.training.settings.config import Config

BASELINES = {
    "raw": "the inputs, concatenated",
    "pca": "principal components of each view, concatenated",
    "linear-mcca": "linear canonical correlations of k views",
    "supervised": "the same network, trained on the labels of all training rows",
}
COMPONENTS = 32


def principal(train: Tensor, others: Sequence[Tensor], *, size: int) -> list[Tensor]:
    """Return each of `others` (n, d) projected to the first principal components of `train`, (n, size)."""
    centre = train.mean(0)
    _, _, directions = torch.linalg.svd(train - centre, full_matrices=False)
    return [(part - centre) @ directions[:size].T for part in others]


def baseline(name: str, config: Config) -> tuple[ViewsData, dict[str, list[Tensor]]]:
    """Return the data, and for every split the views (n, d) that a baseline computes."""
    data = build_data(config)
    parts: dict[str, list[Tensor]] = {
        split: [view.flatten(1) for view in data.arrays(split)[0]] for split in ("train", "val", "test")
    }
    if name == "supervised":
        return data, _supervised(config, data, parts)
    if name == "raw":
        return data, parts
    size = COMPONENTS if name == "pca" else 2 * COMPONENTS
    reduced = [principal(views[0], views, size=size) for views in zip(*parts.values())]
    parts = {split: [view[i] for view in reduced] for i, split in enumerate(parts)}
    if name == "linear-mcca":
        directions = canonical(parts["train"], size=COMPONENTS).directions
        parts = {split: [view @ w for view, w in zip(views, directions)] for split, views in parts.items()}
    return data, parts


def _supervised(config: Config, data: ViewsData, parts: dict[str, list[Tensor]]) -> dict[str, list[Tensor]]:
    """Return the views of all splits, embedded by the network of the losses after it was trained on labels.

    The classifier is linear in the mean of the unit embeddings.
    """
    net = StackedNet(build_module(config, data).net)
    head = nn.Linear(config.heads.embedding_size, data.num_classes or 1)
    scale = nn.Parameter(torch.tensor(10.0))
    _, mask, labels = data.arrays("train")
    if labels is None:
        raise ValueError("data must have labels for the baseline 'supervised', got none.")
    random = torch.Generator().manual_seed(config.seed)

    def value(step: int) -> Tensor:
        rows = torch.randperm(len(labels), generator=random)[: data.batch_size]
        weight = torch.ones(data.k, len(rows)) if mask is None else mask[:, rows].float()
        units = normalize(net([view[rows] for view in parts["train"]]), dim=-1) * weight.unsqueeze(-1)
        return cross_entropy(head(scale * units.sum(0) / weight.sum(0).unsqueeze(-1)), labels[rows])

    parameters = [*net.parameters(), *head.parameters(), scale]
    steps, rate = config.loop.max_steps or 1, config.optim.learning_rate
    train_with_linear_decay(parameters, value, steps=steps, rate=rate)
    with torch.no_grad():
        return {split: list(net(views)) for split, views in parts.items()}
