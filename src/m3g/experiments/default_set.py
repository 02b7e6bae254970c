"""M3G beside pairwise InfoNCE on the data set that ships with the package; `m3g reproduce default-set`.

Both losses train the same network on the six views of the digits, with the same optimiser and number of epochs. Every
seed has its own split of the rows. Both are trained with every seed over a grid of the same size (three values of
epsilon or temperature, without and with dropout); the setting that is best on the validation splits is measured on the
test splits, which nothing before has looked at.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from m3g.evaluation import Embedded, evaluate
from m3g.training.config import Config
from m3g.training.export import load
from m3g.training.fit import build_data, train
from m3g.training.report import embed
from m3g.training.run import Run

# Linear probe and nearest neighbours on the mean of the views; true partner in another view found first; a probe
# trained on one view and tested on another; points that the best polymatching matches rightly in all views.
COLUMNS = {
    "linear_mean": "linear",
    "knn_mean": "k-NN",
    "recall_at_1": "R@1",
    "linear_transfer": "moved probe",
    "polymatching": "matched",
}
METHODS = {
    "m3g": ("epsilon", (0.04, 0.05, 0.06)),
    "infonce-pwe": ("temperature", (0.1, 0.15, 0.2)),
}
DROPOUTS = (0.0, 0.1)
# What a setting is chosen by, in equal parts.
CHOSEN_BY = ("linear_mean", "recall_at_1", "linear_transfer")


def settings(loss: str, *, value: float | None = None, dropout: float = 0.0, seed: int = 0) -> Config:
    """The defaults of `m3g train` with a loss, its own parameter, a dropout and a seed."""
    config = Config(loss=loss, seed=seed)
    if value is not None:
        config.loss_options = {METHODS[loss][0]: value}
    if dropout > 0:
        config.encoder_options = {"dropout": dropout}
    config.loop.evaluate_every = 0
    config.loop.accelerator = "cpu"
    return config


def tried(loss: str, *, value: float, dropout: float, seed: int) -> Config:
    """A run of the comparison: a split of its own for every seed, and for M3G all triples of views in each step."""
    config = settings(loss, value=value, dropout=dropout, seed=seed)
    # The default split, 0, is the one that the defaults of `m3g train` were found with.
    config.data_options = {"split_seed": seed + 1}
    if loss == "m3g":
        config.views_per_step = 3
    return config


def measure(run: Path, split: Any, *, polymatching: bool) -> dict[str, float]:
    """What a finished run is worth on a split."""
    config = Run(run).open()
    data, net = build_data(config), load(run, scaled=True)
    return evaluate(embed(net, data, "train"), embed(net, data, split), polymatching=polymatching).numbers


def raw_features(*, split_seed: int = 0) -> dict[str, float]:
    """Probes on the inputs themselves, all views side by side; they share no space, so nothing else applies."""
    data = build_data(Config(data_options={"split_seed": split_seed}))
    parts = []
    for name in ("train", "test"):
        views, _, labels = data.arrays(name)
        joined = torch.cat([view.flatten(1) for view in views], dim=1)
        parts.append(Embedded(embeddings=joined.expand(2, *joined.shape), labels=labels))
    numbers = evaluate(*parts, transfer=False, polymatching=False).numbers
    return {name: numbers[name] for name in ("linear_mean", "knn_mean")}


def compare(folder: Path, *, seeds: Sequence[int] = (0, 1, 2), tell: Callable[[str], None] = print) -> dict[str, Any]:
    """Tune both, and measure the best setting of each on the test splits."""
    methods = {loss: tuned(loss, folder, seeds=seeds, tell=tell) for loss in METHODS}
    raw = summary([raw_features(split_seed=seed + 1) for seed in seeds], ("linear_mean", "knn_mean"))
    return {"methods": methods, "raw": raw, "seeds": list(seeds)}


def tuned(loss: str, folder: Path, *, seeds: Sequence[int], tell: Callable[[str], None]) -> dict[str, Any]:
    """One method: its grid on the validation splits, and the best setting's runs on the test splits."""
    name, values = METHODS[loss]
    grid: list[dict[str, Any]] = []
    for value, dropout in itertools.product(values, DROPOUTS):
        runs = [folder / f"{loss}-{value}-dropout{dropout}-seed{seed}" for seed in seeds]
        for run, seed in zip(runs, seeds):
            train(tried(loss, value=value, dropout=dropout, seed=seed), run)
        found = summary([measure(run, "val", polymatching=False) for run in runs], CHOSEN_BY)
        score = statistics.fmean(found["mean"].values())
        grid.append({"value": value, "dropout": dropout, "score": score, "validation": found, "runs": runs})
        tell(f"{loss}  {name} {value}  dropout {dropout}  validation {_line(found['mean'])}  score {100 * score:.1f}")
    best = max(grid, key=lambda row: row["score"])
    measured = [measure(run, "test", polymatching=True) for run in best["runs"]]
    for seed, numbers in zip(seeds, measured):
        tell(f"{loss}  {name} {best['value']}  dropout {best['dropout']}  seed {seed}  test {_line(numbers)}")
    for row in grid:
        del row["runs"]
    return {"best": best, "tried": grid, "runs": measured, **summary(measured, COLUMNS)}


def _line(numbers: dict[str, float]) -> str:
    return "  ".join(f"{title} {100 * numbers[name]:.1f}" for name, title in COLUMNS.items() if name in numbers)


def summary(runs: list[dict[str, float]], names: Iterable[str]) -> dict[str, Any]:
    """Mean and standard deviation over the seeds."""
    spread = {name: [run[name] for run in runs] for name in names}
    return {
        "mean": {name: statistics.fmean(values) for name, values in spread.items()},
        "deviation": {name: statistics.stdev(values) if len(values) > 1 else 0.0 for name, values in spread.items()},
    }
