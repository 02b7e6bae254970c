"""M3G and pairwise InfoNCE on the built-in six-view digits.

`m3g reproduce default-set`: 60 runs of about 30 seconds on one core; no data required. Expected: a tie.

Both losses train the same network with the same optimiser and number of epochs. Every seed has a different split of the
rows. Both losses have the same grid (five temperatures, without and with dropout), which is trained with every seed.
The best setting on the validation splits is evaluated on the test splits, which are not used for any choice.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

import torch

from m3g.data.splits import SPLITS
from m3g.evaluation import Embedded, evaluate
from m3g.experiments.engine.spec import Experiment, Labels, Request, Result, RunSpec, Settings
from m3g.experiments.output.tables import markdown
from m3g.experiments.runner.arms import TEMPERATURES
from m3g.experiments.runner.full import config_of, difference, trained
from m3g.training import build_data
from m3g.training.runs.embed import embed
from m3g.training.runs.files import write_json
from m3g.training.runs.folder import environment
from m3g.training.settings.config import Config

# Scores of the table and their titles; `m3g.evaluation.METRICS` defines them.
COLUMNS = {
    "linear_mean": "linear",
    "knn_mean": "k-NN",
    "recall_at_1": "R@1",
    "linear_transfer": "moved probe",
    "polymatching": "matched",
}
METHODS = ("m3g", "infonce-pwe")
DROPOUTS = (0.0, 0.1)
SELECTION_SCORES = ("linear_mean", "recall_at_1", "linear_transfer")  # their mean on validation rows selects a setting


class Summary(TypedDict):
    """Mean and standard deviation of each score over the seeds."""

    mean: dict[str, float]
    deviation: dict[str, float]


class GridSetting(TypedDict):
    """A setting of a grid with its validation scores."""

    temperature: float
    dropout: float
    score: float
    validation: Summary


class MethodResult(Summary):
    """Test scores of the best setting of a method.

    Attributes:
        best: the best setting.
        tried: all settings of the grid.
        runs: the test scores of the best setting by seed.
    """

    best: GridSetting
    tried: list[GridSetting]
    runs: list[dict[str, float]]


def settings(loss: str, *, temperature: float | None = None, dropout: float = 0.0, seed: int = 0) -> Config:
    """Return the defaults of `m3g train` with a loss, its temperature, a dropout rate and a seed."""
    config = Config(loss=loss, seed=seed)
    if temperature is not None:
        config.loss_options = {"temperature": temperature}
    if dropout > 0:
        config.encoder_options = {"dropout": dropout}
    config.loop.evaluate_every = 0
    config.loop.accelerator = "cpu"
    return config


def grid_config(loss: str, *, temperature: float, dropout: float, seed: int) -> Config:
    """Return the configuration of a run: one split per seed, and triples of views for M3G."""
    config = settings(loss, temperature=temperature, dropout=dropout, seed=seed)
    # Split 0 is not used, because the defaults of `m3g train` were chosen on it.
    config.data_options = {"split_seed": seed + 1}
    if loss == "m3g":
        config.views_per_step = 3
    return config


def runs(request: Request) -> list[RunSpec]:
    """Return the runs of every setting of both grids with every seed."""
    specs = []
    for seed in range(request.seeds):
        for loss in filter(request.wants, METHODS):
            for temperature, dropout in itertools.product(TEMPERATURES, DROPOUTS):
                config = difference(grid_config(loss, temperature=temperature, dropout=dropout, seed=seed))
                labels: Labels = {"arm": loss, "value": temperature, "dropout": dropout, "seed": seed}
                specs.append(RunSpec("default-set", {"config": config}, labels))
    return specs


def work(settings: Settings, folder: Path, data: Path) -> dict[str, dict[str, float]]:
    """Train, and evaluate on the validation and the test split."""
    net, views = trained(config_of(settings), folder, scaled=True)
    train, val, test = (embed(net, views, split) for split in SPLITS)
    return {"val": evaluate(train, val, polymatching=False).numbers, "test": evaluate(train, test).numbers}


def raw_features(*, split_seed: int = 0) -> dict[str, float]:
    """Return the scores of probes on the concatenated inputs; other scores require a common space."""
    data = build_data(Config(data_options={"split_seed": split_seed}))
    parts = []
    for split in (SPLITS[0], SPLITS[2]):
        views, _, labels = data.arrays(split)
        joined = torch.cat([view.flatten(1) for view in views], dim=1)
        parts.append(Embedded(embeddings=joined.expand(2, *joined.shape), labels=labels))
    numbers = evaluate(*parts, transfer=False, polymatching=False).numbers
    return {name: numbers[name] for name in ("linear_mean", "knn_mean")}


def collect(results: list[Result], folder: Path) -> str:
    """Select the setting of each method on the validation splits; write its test scores and return them as a table."""
    seeds = sorted({row["labels"]["seed"] for row in results})
    methods = {}
    for loss in METHODS:
        loss_results = [row for row in results if row["labels"]["arm"] == loss]
        if loss_results:
            methods[loss] = method_result(loss_results)
    raw = summary([raw_features(split_seed=seed + 1) for seed in seeds], ("linear_mean", "knn_mean"))
    numbers = {"methods": methods, "raw": raw, "seeds": seeds, "environment": environment()}
    write_json(folder / "default_set.json", numbers)
    rows = [["test, %", *COLUMNS.values()]]
    summaries: dict[str, Summary] = {**methods, "raw features": raw}
    for method, row in summaries.items():
        cells = (
            f"{100 * row['mean'][c]:.1f}±{100 * row['deviation'][c]:.1f}" if c in row["mean"] else "—" for c in COLUMNS
        )
        rows.append([method, *cells])
    lines = [
        f"{loss}  temperature {method['best']['temperature']:g}  dropout {method['best']['dropout']}  "
        f"validation {_line(method['best']['validation']['mean'])}"
        for loss, method in methods.items()
    ]
    return "\n".join([*lines, "", markdown(rows), "", f"numbers     {folder / 'default_set.json'}"])


def method_result(results: list[Result]) -> MethodResult:
    """Select the best setting of a method on the validation splits; return its test scores and the whole grid."""
    grid: list[tuple[GridSetting, list[dict[str, float]]]] = []
    for setting in sorted({(row["labels"]["value"], row["labels"]["dropout"]) for row in results}):
        rows = [row for row in results if (row["labels"]["value"], row["labels"]["dropout"]) == setting]
        validation = summary([row["metrics"]["val"] for row in rows], SELECTION_SCORES)
        score = statistics.fmean(validation["mean"].values())
        tests = [row["metrics"]["test"] for row in sorted(rows, key=lambda row: row["labels"]["seed"])]
        temperature, dropout = setting
        grid.append(({"temperature": temperature, "dropout": dropout, "score": score, "validation": validation}, tests))
    best, tests = max(grid, key=lambda pair: pair[0]["score"])
    return {"best": best, "tried": [setting for setting, _ in grid], "runs": tests, **summary(tests, COLUMNS)}


def _line(numbers: dict[str, float]) -> str:
    return "  ".join(f"{title} {100 * numbers[name]:.1f}" for name, title in COLUMNS.items() if name in numbers)


def summary(runs: list[dict[str, float]], names: Iterable[str]) -> Summary:
    """Return the mean and the standard deviation of each score over the runs."""
    scores = {name: [run[name] for run in runs] for name in names}
    return {
        "mean": {name: statistics.fmean(values) for name, values in scores.items()},
        "deviation": {name: statistics.stdev(values) if len(values) > 1 else 0.0 for name, values in scores.items()},
    }


EXPERIMENT = Experiment(
    name="default-set",
    runs=runs,
    work=work,
    collect=collect,
    methods=METHODS,
    seconds=30.0,
    seeds={"laptop": 3},
)
