"""References without a loss of k views: the inputs, and the network of the compared methods trained on labels.

They show which scores are possible with the data and the probe. If the network trained on labels scores hardly higher
than the inputs, the data cannot distinguish methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from m3g.data import ViewsData
from m3g.experiments.engine.spec import Request, RunSpec
from m3g.experiments.output.tables import markdown
from m3g.experiments.runner.arms import grid_runs
from m3g.experiments.runner.quick import fit_quickly
from m3g.nets import MultiViewNet
from m3g.training import build_data, build_module
from m3g.training.loop.light import batches, descend, training_rows
from m3g.training.settings.config import Config

REFERENCES = {
    "raw": "the probe on the inputs",
    "supervised": "the same network and steps, trained on the labels of all training rows",
}


class Inputs(nn.Module):
    """Network without parameters: its features are the inputs, and its embedding (1, n, d) is their concatenation.

    With `signals`, the features are log power spectra, because single samples are not informative if phases differ.

    Example:
        >>> views = [torch.randn(4, 3, 2), torch.randn(4, 5)]
        >>> Inputs()(views).shape, Inputs().features(views)[0].shape
        (torch.Size([1, 4, 11]), torch.Size([4, 6]))
    """

    def __init__(self, *, signals: bool = False) -> None:
        super().__init__()
        self.signals = signals

    def features(self, views: Sequence[Tensor]) -> list[Tensor]:
        if self.signals:
            views = [torch.fft.rfft(view).abs().square().clamp(min=1e-8).log() for view in views]
        return [view.flatten(1) for view in views]

    def forward(self, views: Sequence[Tensor]) -> Tensor:
        return torch.cat(self.features(views), dim=1).unsqueeze(0)


Network: TypeAlias = MultiViewNet | Inputs


def fit_or_reference(config: Config, reference: str | None, folder: Path) -> tuple[Network, ViewsData]:
    """Return the network of a run, trained with its loss or as one of `REFERENCES`, and the data of the run."""
    if reference is None:
        module, data = fit_quickly(config, folder)
        return module.net, data
    data = build_data(config)
    return Inputs() if reference == "raw" else fit_labels(config, data, joined=False), data


def fit_labels(config: Config, data: ViewsData, *, joined: bool) -> MultiViewNet:
    """Return the network of a configuration, trained on labels with cross-entropy.

    Batches and steps are those of the configuration. Every view is classified by its features; `joined` classifies the
    mean of the views' embeddings instead, for views that are informative only together.
    """
    torch.manual_seed(config.seed)
    net = build_module(config, data).net
    per_epoch = data.sampler().num_steps
    steps = config.loop.max_steps or config.loop.num_epochs(per_epoch) * per_epoch
    head = nn.LazyLinear(data.num_classes or 1)
    _logits(net, head, training_rows(data, [0, 1])["views"], joined)  # the first call determines the width of the head
    feed = batches(data)

    def value(step: int) -> Tensor:
        batch = next(feed)
        labels = batch["label"]
        assert labels is not None
        logits = _logits(net, head, batch["views"], joined)
        return cross_entropy(logits, labels.repeat(len(logits) // len(labels)))

    net.train()
    parameters = [*net.parameters(), *head.parameters()]
    train_with_linear_decay(parameters, value, steps=steps, rate=config.optim.learning_rate)
    return net.eval()


def train_with_linear_decay(
    parameters: Sequence[nn.Parameter], value: Callable[[int], Tensor], *, steps: int, rate: float
) -> None:
    """Train with AdamW and a learning rate that decreases linearly from `rate` to 0."""
    optimizer = torch.optim.AdamW(parameters, lr=rate)
    for _ in descend(optimizer, value, steps=steps, rate=lambda step: rate * (1 - step / steps)):
        pass


def _logits(net: MultiViewNet, head: nn.Module, views: list[Tensor], joined: bool) -> Tensor:
    logits: Tensor = head(net(views).mean(0) if joined else torch.cat(net.features(views)))
    return logits


def reference_runs(
    make: Callable[[str, int], list[RunSpec]],
    request: Request,
    *,
    tuning_seed: int,
    rates: Sequence[float],
) -> list[RunSpec]:
    """Return the runs `make(name, seed)` of the requested references; `supervised` has a tuned learning rate."""
    runs: list[RunSpec] = []
    if request.wants("supervised"):
        changes = [{"optim.learning_rate": rate} for rate in rates]
        grid, candidates = grid_runs(changes, make("supervised", tuning_seed))
        runs += grid
        for run in (run for seed in range(request.seeds) for run in make("supervised", seed)):
            runs.append(replace(run, candidates=candidates))
    if request.wants("raw"):
        runs += [run for seed in range(request.seeds) for run in make("raw", seed)]
    return runs


def reference_table(title: str, rows: Mapping[str, Mapping[str, str]]) -> str:
    """Return a table of references with a row per setting; "" if there are none.

    `rows` contains the cells by setting and reference.
    """
    names = [name for name in REFERENCES if any(name in by for by in rows.values())]
    cells = [[title, *names], *([setting, *(by.get(name, "—") for name in names)] for setting, by in rows.items())]
    return markdown(cells) if names else ""
