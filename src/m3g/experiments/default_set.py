"""M3G beside pairwise InfoNCE on the data set that ships with the package; `m3g reproduce default-set`.

Both losses train the same network on the six views of the digits, with the same optimiser and number of epochs.
Each is tuned on the validation split over a grid of the same size (three values of its temperature or epsilon, two
learning rates), and then trained with three seeds and measured on the test split.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from m3g.evaluation import Embedded, Report, evaluate
from m3g.training.config import Config
from m3g.training.export import load
from m3g.training.fit import build_data, train
from m3g.training.report import embed

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
    "m3g": ("epsilon", (0.025, 0.05, 0.1)),
    "infonce-pwe": ("temperature", (0.05, 0.1, 0.2)),
}
LEARNING_RATES = (2e-3, 3e-3)


def settings(loss: str, *, value: float | None = None, learning_rate: float | None = None, seed: int = 0) -> Config:
    """The defaults of `m3g train` with a loss, its own parameter, a learning rate and a seed."""
    config = Config(loss=loss, seed=seed)
    if value is not None:
        config.loss_options = {METHODS[loss][0]: value}
    if learning_rate is not None:
        config.optim.learning_rate = learning_rate
    config.loop.evaluate_every = 0
    config.loop.accelerator = "cpu"
    return config


def measure(config: Config, folder: Path, split: Any, *, polymatching: bool = True) -> Report:
    """Train, and evaluate on a split."""
    run = train(config, folder)
    data, net = build_data(config), load(run.path, scaled=True)
    return evaluate(embed(net, data, "train"), embed(net, data, split), polymatching=polymatching)


def raw_features(split: Any = "test") -> dict[str, float]:
    """Probes on the inputs themselves, all views side by side; they share no space, so nothing else applies."""
    data = build_data(Config())
    parts = {}
    for name in ("train", split):
        views, _, labels = data.arrays(name)
        joined = _side_by_side(views)
        parts[name] = Embedded(embeddings=joined.expand(2, *joined.shape), labels=labels)
    numbers = evaluate(parts["train"], parts[split], transfer=False, polymatching=False).numbers
    return {name: numbers[name] for name in ("linear_mean", "knn_mean")}


def _side_by_side(views: list[Any]) -> Any:
    import torch

    return torch.cat([view.flatten(1) for view in views], dim=1)


def tune(loss: str, folder: Path, *, tell: Callable[[str], None]) -> dict[str, Any]:
    """The best of the grid on the validation split, by the mean of R@1 and the moved probe's accuracy."""
    tried: list[dict[str, Any]] = []
    name, values = METHODS[loss]
    for value in values:
        for rate in LEARNING_RATES:
            where = folder / f"tune-{loss}-{value}-{rate}"
            numbers = measure(settings(loss, value=value, learning_rate=rate), where, "val", polymatching=False).numbers
            score = (numbers["recall_at_1"] + numbers["linear_transfer"]) / 2
            tried.append({"value": value, "learning_rate": rate, "score": score, "validation": numbers})
            tell(f"{loss}  {name} {value}  learning rate {rate}  score {score:.4f}")
    return {"best": max(tried, key=lambda row: row["score"]), "tried": tried}


def compare(folder: Path, *, seeds: Sequence[int] = (0, 1, 2), tell: Callable[[str], None] = print) -> dict[str, Any]:
    """Tune both, train both with every seed, and measure on the test split."""
    methods = {loss: tuned(loss, folder, seeds=seeds, tell=tell) for loss in METHODS}
    return {"methods": methods, "raw": raw_features(), "seeds": list(seeds)}


def tuned(loss: str, folder: Path, *, seeds: Sequence[int], tell: Callable[[str], None]) -> dict[str, Any]:
    """One method: its grid, and the test results of the best setting with every seed."""
    found = tune(loss, folder, tell=tell)
    best = found["best"]
    runs = []
    for seed in seeds:
        config = settings(loss, value=best["value"], learning_rate=best["learning_rate"], seed=seed)
        runs.append(measure(config, folder / f"{loss}-seed{seed}", "test").numbers)
        tell(f"{loss}  seed {seed}  " + "  ".join(f"{name} {runs[-1][name]:.4f}" for name in COLUMNS))
    return {**found, "runs": runs, **summary(runs)}


def summary(runs: list[dict[str, float]]) -> dict[str, Any]:
    """Mean and standard deviation over the seeds."""
    spread = {name: [run[name] for run in runs] for name in COLUMNS}
    return {
        "mean": {name: statistics.fmean(values) for name, values in spread.items()},
        "deviation": {name: statistics.stdev(values) if len(values) > 1 else 0.0 for name, values in spread.items()},
    }
