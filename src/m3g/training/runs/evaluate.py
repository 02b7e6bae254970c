"""Evaluation during and after training: scores, plots and a table."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from m3g.data import ViewsData
from m3g.data.batch import Batch
from m3g.data.splits import Split
from m3g.evaluation import METRICS, Embedded, LinearCCA, Report, evaluate, quick_probe
from m3g.evaluation.baselines import guess
from m3g.nets import MultiViewNet
from m3g.training.loop.build import build_data, build_loss
from m3g.training.loop.logs import Table
from m3g.training.loop.module import MultiViewModule
from m3g.training.loop.processes import is_first
from m3g.training.loop.start import fit_linear_cca
from m3g.training.runs.embed import embed, embed_batches
from m3g.training.runs.export import load
from m3g.training.runs.files import write_csv, write_json
from m3g.training.runs.folder import Run
from m3g.training.runs.pictures import draw
from m3g.training.runs.trained import TrainedNet
from m3g.training.settings.config import Config
from m3g.training.settings.views import kinds

MAX_RAW_VALUES = 1e7  # maximum number of values in the raw features; a probe on more is slower than all other scores
# Maximum number of evaluated rows, evenly spaced, which bounds the memory of the embeddings.
MEASURED: dict[Split, int] = {"train": 50_000, "test": 20_000}
WIDE = 96  # minimum width of a terminal in columns for the table of results to include the meanings of the measures
QUICK = ("linear_mean", "knn_mean", "recall_at_1", "effective_rank")  # scores of evaluations during training


class Probe(Callback):
    """Callback that evaluates on the validation split every few epochs and writes a row of `probes.csv`."""

    def __init__(self, folder: str | os.PathLike[str], *, every: int) -> None:
        self.table = Table(Path(folder) / "probes.csv")
        self.every = every

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, MultiViewModule)
        net, data = pl_module.net, trainer.datamodule  # type: ignore[attr-defined]
        if (trainer.current_epoch + 1) % self.every or data.num_rows("val") < 2:
            return
        # Every process embeds, because each may store only a shard of the weights; the first evaluates.
        seen = embed(net, data, "train", most=MEASURED["train"])
        held_out = embed(net, data, "val", most=MEASURED["test"])
        if not trainer.is_global_zero:
            return
        report = evaluate(seen, held_out, transfer=False, polymatching=False)
        row = {name: report.numbers[name] for name in QUICK if name in report.numbers}
        self.table.append({"step": trainer.global_step, "epoch": trainer.current_epoch + 1, **row})
        for logger in trainer.loggers:
            logger.log_metrics({f"probe/{name}": value for name, value in row.items()}, step=trainer.global_step)


def watch(config: Config, folder: str | os.PathLike[str]) -> list[Callback]:
    """Return the callbacks that evaluate during training."""
    return [Probe(folder, every=config.loop.evaluate_every)] if config.loop.evaluate_every else []


def evaluate_run(
    run: str | os.PathLike[str],
    *,
    data: ViewsData | None = None,
    trust: bool = False,
    paper_probe: bool = False,
    few_shot: bool | None = None,
) -> tuple[Report, list[Path]]:
    """Evaluate a finished run on its test split; write `results.json` and the plots to its folder.

    Args:
        run: the folder.
        data: the data module of the run; None builds it.
        trust: allow encoder classes from outside m3g, torch.nn and transformers.
        paper_probe: also train the paper's linear probe.
        few_shot: also train probes with a few labels per class; None means `data.few_shot`, which is True for signals.

    Returns:
        The scores, and the paths of the plots.
    """
    folder = Run.of(run)
    config = folder.open()
    net = folder.net or load(folder, trust=trust, scaled=True)
    data = build_data(config, folder) if data is None else data
    if isinstance(net, TrainedNet):
        trained, given = net.view_shapes, [tuple(shape) for shape in data.view_shapes]
        if trained != given:
            raise ValueError(f"data must have views of the same shapes as in training, {trained}, got {given}.")
    if data.num_rows("test") < 2:
        raise ValueError(
            "data_options.test must be a fraction that leaves at least 2 rows for the evaluation, got fewer: "
            "choose a larger fraction, or use m3g embed."
        )
    test = embed(net, data, "test", most=MEASURED["test"])
    few = data.few_shot if few_shot is None else few_shot
    train = embed(net, data, "train", most=MEASURED["train"])
    for split, most in MEASURED.items():
        if data.num_rows(split) > most:
            print(f"evaluated on {most} of the {data.num_rows(split)} {split} rows, evenly spaced")
    raw, linear = raw_features(data), linear_cca(data, size=config.heads.embedding_size)
    present = [l for l in range(data.k) if test.mask is None or bool(test.mask[l].any())]
    if 2 <= len(present) < data.k:
        missing = [data.view_names[l] for l in range(data.k) if l not in present]
        print(f"evaluated without {', '.join(missing)}: missing from all test rows")
        train, test = train.only(present), test.only(present)
        raw, linear = (part and (part[0].only(present), part[1].only(present)) for part in (raw, linear))
    names = list(test.view_names or ())
    readout = build_loss(config).readout or "mean"
    report = evaluate(
        train, test, paper_probe=paper_probe, few_shot=few, raw=raw, linear_cca=linear, missing=True, readout=readout
    )
    held_out = data.held_out_batches()
    if held_out is not None and len(net.encoders) == 1:  # held-out views have no separate encoder
        name = "linear_held_out"
        report.numbers[name], report.chance[name] = held_out_accuracy(net, *held_out)
    content = dataclasses.asdict(report)
    write_rows(folder.rows, test.index, content.pop("rows"))
    for part in content["missing"].get("subsets", []):
        part["views"] = [names[l] for l in part["views"]]
    test_rows = min(data.num_rows("test"), MEASURED["test"])
    rows = {"train_rows": data.num_rows("train"), "test_rows": test_rows}
    write_json(folder.results, {"views": names, **rows, **content})
    return report, draw(folder, report, test)


def write_rows(path: Path, index: Tensor | None, contributions: dict[str, Tensor]) -> None:
    """Write the contributions of each test row to the scores, one line per row; write nothing if row numbers repeat."""
    path.unlink(missing_ok=True)
    if index is not None and len(index.unique()) == len(index):
        columns = ([f"{value:.6g}" for value in part.tolist()] for part in contributions.values())
        write_csv(path, ["row", *contributions], zip(index.tolist(), *columns))


def raw_features(data: ViewsData) -> tuple[Embedded, Embedded] | None:
    """Return training and test rows with the inputs as features; None if these are not numeric or too large."""
    rows = sum(min(data.num_rows(split), most) for split, most in MEASURED.items())
    if rows * sum(map(math.prod, data.view_shapes)) > MAX_RAW_VALUES:
        return None
    parts = []
    for split, most in MEASURED.items():
        views, mask, labels = data.arrays(split, most=most)
        if not all(view.is_floating_point() for view in views):
            return None
        parts.append(Embedded(features=views, labels=labels, mask=mask))
    return parts[0], parts[1]


def linear_cca(data: ViewsData, *, size: int) -> tuple[Embedded, Embedded] | None:
    """Return training and test rows mapped by linear CCA.

    The result is None if a view is neither a vector, a table nor TF-IDF text, or if the fit fails.
    """
    if set(kinds(data)) - {"vector", "table", "tfidf"}:
        return None
    try:
        cca = fit_linear_cca(data, range(data.k), size=size)
    except ValueError:  # too few rows have two views
        return None
    seen, unseen = (_mapped(cca, data, split, most) for split, most in MEASURED.items())
    return seen, unseen


def _mapped(cca: LinearCCA, data: ViewsData, split: Split, most: int) -> Embedded:
    """Return the rows of a split mapped by linear CCA, computed batch by batch to bound the memory.

    The points are written to one tensor, because small tensors allocated between the batches would fragment the memory.
    """
    points = torch.empty(data.k, min(most, data.num_rows(split)), cca.size)
    masks, labels, start = [], [], 0
    for batch in data.loader(split, most=most):
        n = len(batch["views"][0])
        torch.stack(cca(batch["views"]), out=points[:, start : start + n])
        start += n
        masks.append(batch["mask"])
        labels.append(batch["label"])
    return Embedded(
        points,
        labels=None if labels[0] is None else torch.cat(labels),
        mask=None if masks[0] is None else torch.cat(masks, dim=1),
    )


def held_out_accuracy(net: MultiViewNet, train: Iterable[Batch], test: Iterable[Batch]) -> tuple[float, float]:
    """Return the accuracy of a linear probe trained on seen views and tested on held-out views, and that of a guess.

    Batches have one view each; all views share one encoder.
    """
    rows: list[Tensor] = []
    for batches in (train, test):
        points = embed_batches(net, batches)
        assert points.features is not None
        assert points.labels is not None
        rows += [points.features[0], points.labels]
    return quick_probe(*rows), guess(rows[1], rows[3])


def finish(run: Run, data: ViewsData, *, trust: bool = False) -> None:
    """Evaluate a newly trained run in the first process, and print the scores and the locations of the files."""
    if not is_first():
        return
    if data.num_rows("test") < 2:
        print(f"\nno test split to evaluate on\nrun       {run.path}")
        return
    report, pictures = evaluate_run(run, data=data, trust=trust)
    show(report, pictures)
    print(f"\nrun       {run.path}\nresults   {run.results}\nmodel     {run.weights}")


def show(report: Report, pictures: Iterable[Path]) -> None:
    """Print a report as a table, and the paths of its plots."""
    from rich.console import Console
    from rich.table import Table as Grid

    console = Console()
    wide = console.width >= WIDE
    grid = Grid(title="on the test split", title_justify="left")
    grid.add_column("measure", no_wrap=True)
    others = {"linear CCA": report.linear_cca, "raw": report.raw, "chance": report.chance}
    others = {name: column for name, column in others.items() if column}
    for name in ("value", *others):
        grid.add_column(name, justify="right")
    if wide:
        grid.add_column("meaning")
    for name, value in report.numbers.items():
        cells = [_rounded(number) for number in (value, *(column.get(name) for column in others.values()))]
        grid.add_row(name, *cells, *([METRICS[name]] if wide else []))
    console.print(grid)
    meanings = {
        "linear CCA": "fitted on the training rows, no network",
        "raw": "the inputs of all views, concatenated (in the row linear_views, each view alone), no network",
        "chance": "the most frequent class, or a random guess or order",
    }
    if len(others) > 1:
        print("; ".join(f"{name}: {meanings[name]}" for name in others))
    if not wide:
        print(f"for the meanings, use m3g report RUN or a terminal of at least {WIDE} columns")
    for picture in pictures:
        print(f"picture   {picture}")


def _rounded(number: float | None) -> str:
    if number is None:
        return "—"
    return f"{number:.4f}" if number == 0 or abs(number) >= 1e-4 else f"{number:.0e}"
