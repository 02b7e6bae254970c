"""Rows whose views do not belong together; `m3g reproduce mismatch`.

On the six-view digits a share of the training entries takes the view of another object. Every loss is trained with and
without `mismatch`, on its own split of the rows for every seed, with the defaults of `m3g train`. What is asked: how
well the wrong entries are found (area under the ROC curve, and how many are among the first 15 % of the list), and what
the noise costs on clean test rows (linear probe, true partner found first).
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from m3g import _checks
from m3g.data.arrays import Arrays
from m3g.evaluation import evaluate
from m3g.experiments.full import config_of, difference
from m3g.experiments.names import NAMES
from m3g.experiments.quick import fit_quickly
from m3g.experiments.spec import Experiment, Request, Result, RunSpec, Settings
from m3g.experiments.tables import markdown, percent
from m3g.training.config import Config
from m3g.training.evaluate import embed
from m3g.training.files import write_json

METHODS = ("m3g", "infonce-pwe")
SHARES = (0.0, 0.1, 0.2, 0.4, 0.6)
SEEDS = 5
FIRST = 0.15
SCORES = {"linear_mean": "linear probe", "recall_at_1": "R@1"}


def runs(request: Request) -> list[RunSpec]:
    """Every share of swapped entries, with and without `mismatch`, with every seed; the small shares first."""
    specs = []
    for share in SHARES:
        for seed in range(SEEDS if request.seeds is None else request.seeds):
            for loss in filter(request.wants, METHODS):
                for mismatch in (False, True):
                    config = Config(loss=loss, seed=seed, mismatch=mismatch)
                    config.data_options = {"split_seed": seed + 1, "swapped": share}
                    if request.miniature:
                        config.loop.max_steps, config.data_options["views"] = 6, ["fourier", "karhunen", "zernike"]
                    labels = {"arm": loss, "share": share, "mismatch": mismatch, "seed": seed}
                    specs.append(RunSpec("mismatch", {"config": difference(config)}, labels))
    return specs


def work(settings: Settings, folder: Path, data: Path) -> dict[str, Any]:
    """Train, judge the list of doubtful entries, and measure on the test rows, of which none was swapped."""
    module, views = fit_quickly(config_of(settings), folder)
    assert isinstance(views, Arrays)
    numbers = evaluate(
        embed(module.net, views, "train"), embed(module.net, views, "test"), transfer=False, polymatching=False
    ).numbers
    found: dict[str, Any] = {name: numbers[name] for name in SCORES}
    if module.mismatch is not None:
        odds = module.mismatch.log_odds()[:, views.datasets["train"].index]  # type: ignore[attr-defined]
        found["left_out"] = float((odds < 0).float().mean())
        if views.swapped_from is not None:
            found |= found_entries(odds, views.swapped_from != torch.arange(odds.shape[1]))
    return found


def found_entries(odds: Tensor, wrong: Tensor) -> dict[str, float]:
    """How well the order of the log odds (k, n) finds the wrong entries (k, n).

    Example:
        >>> odds = torch.tensor([[-1.0, 2.0, 3.0, 4.0]])
        >>> found_entries(odds, odds < 0)
        {'auc': 1.0, 'among_first': 1.0}
    """
    metrics = _checks.extra("sklearn.metrics", "train")
    odds, wrong = odds.flatten(), wrong.flatten()
    first = odds.argsort(stable=True)[: round(FIRST * len(odds)) or 1]
    auc = metrics.roc_auc_score(wrong.numpy(), -odds.numpy())
    return {"auc": float(auc), "among_first": float(wrong[first].sum() / wrong.sum())}


def collect(results: list[Result], folder: Path) -> str:
    """One row per loss and share, and the curves."""
    titles = ["loss", "swapped", "AUC", f"found in first {FIRST:.0%}", "left out"]
    rows = [titles + [f"{title}, {state}" for title in SCORES.values() for state in ("off", "on")]]
    table: list[dict[str, Any]] = []
    for loss in METHODS:
        for share in SHARES:
            mine = [r for r in results if (r["labels"]["arm"], r["labels"]["share"]) == (loss, share)]
            values = {
                (name, on): [r["metrics"][name] for r in mine if r["labels"]["mismatch"] == on and name in r["metrics"]]
                for name in ("auc", "among_first", "left_out", *SCORES)
                for on in (False, True)
            }
            if not mine:
                continue
            table.append({"loss": loss, "share": share, "values": {f"{n} {on}": v for (n, on), v in values.items()}})
            middle = values["among_first", True]
            cells = [percent(values["auc", True]), f"{100 * statistics.median(middle):.1f} (median)" if middle else "—"]
            cells += [percent(values["left_out", True])]
            cells += [percent(values[name, on]) for name in SCORES for on in (False, True)]
            rows.append([loss, f"{share:.0%}", *cells])
    write_json(folder / "mismatch.json", table)
    picture = draw(table, folder / "mismatch")
    return "\n".join([markdown(rows), "", f"numbers     {folder / 'mismatch.json'}", f"picture     {picture}"])


def draw(table: list[dict[str, Any]], path: Path) -> Path:
    """AUC, probe and retrieval against the share of swapped entries: PNG and SVG."""
    _checks.extra("matplotlib", "plot").use("Agg")
    plt = _checks.extra("matplotlib.pyplot", "plot")
    figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
    for axis, (name, title) in zip(axes, {"auc": "wrong entries found, AUC", **SCORES}.items()):
        for loss, colour in zip(METHODS, ("#0072b2", "#d55e00")):
            for on, line in ((True, "-"), (False, "--")):
                points = [(row["share"], row["values"][f"{name} {on}"]) for row in table if row["loss"] == loss]
                points = [(100 * share, 100 * np.array(values)) for share, values in points if values]
                if points:
                    x, y = [share for share, _ in points], [values.mean() for _, values in points]
                    spread = [values.std() for _, values in points]
                    style = {"color": colour, "linestyle": line, "marker": "o", "markersize": 3, "capsize": 2}
                    axis.errorbar(x, y, spread, label=f"{loss}{', mismatch' if on else ''}", **style)
        axis.set(xlabel="swapped entries, %", title=title)
    axes[1].legend(fontsize=7)
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
    plt.close(figure)
    return path.with_suffix(".png")


EXPERIMENT = Experiment(
    name="mismatch",
    about=NAMES["mismatch"],
    runs=runs,
    work=work,
    collect=collect,
    methods=METHODS,
    seconds=40.0,
)
