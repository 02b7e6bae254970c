"""`m3g demo`: compare M3G, pairwise InfoNCE, linear CCA and raw features in two tables."""

from __future__ import annotations

import statistics
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from m3g.cli.output import check_new_folder, print_table
from m3g.cli.parser import Parser

if TYPE_CHECKING:
    from m3g.evaluation.missing import Missing

DESCRIPTION = {
    "demo": """Train M3G and pairwise InfoNCE on the six-view digits from random weights, and compare both with linear
CCA and the raw features. Then train several losses on sums of two digits, with three views of which any two are
independent. Takes a few minutes."""
}


COLUMNS = {
    "linear_mean": "linear",
    "one_view": "one view",
    "most_missing": "70 % missing",
    "linear_transfer": "moved",
    "recall_at_1": "R@1",
    "polymatching": "matched",
}
NOTES = (
    "linear: accuracy of a linear probe, trained and tested on the mean of the six views. one view, 70 % missing: the",
    "same probe, tested on a single view, and after entries are dropped with a probability of 70 % (every row keeps",
    "one). moved: a probe trained on one view, tested on another. R@1: objects retrieved in another view, among 400.",
    "matched: objects that the best polymatching of a batch of 16 matches correctly in all six views. Raw features are",
    "all views concatenated, with missing values replaced by their mean. After 20 epochs (the default), they have the",
    "best accuracy on complete rows, and embeddings have a better accuracy if few views are present.",
)
SUM_NOTES = (
    "The first view shows a digit a, the second a digit b, and the third the digit (a + b) mod 10. The query consists",
    "of the first two views. A sum is retrieved if the nearest point of the third view shows the correct digit; chance",
    "is 10 %. Any two views are independent, so losses that compare pairs of views learn nothing.",
)


def probes_on_fewer(missing: Missing, name: Literal["linear", "linear_raw"]) -> dict[str, float]:
    """Return the accuracy of a linear probe on all views, on one view, and with most entries missing."""
    single = [part[name] for part in missing["subsets"] if len(part["views"]) == 1]
    one_view = statistics.fmean(score for score in single if score is not None)
    complete, *_, fewest = missing["curve"][name]
    assert complete is not None
    assert fewest is not None
    return {"linear_mean": complete, "one_view": one_view, "most_missing": fewest}


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument(
        "--out", type=str, default=None, help="folder of the runs; by default the next free runs/demo-N"
    )
    parser.add_argument("--epochs", type=int, default=None, help="passes over the data; 20 by default")


def run(args: Namespace, name: str) -> None:
    import m3g.training.runs.evaluate  # noqa: F401 - before the folder is created, so that Ctrl-C leaves none
    from m3g.training.runs.numbered import reserved

    given = check_new_folder(args.out)
    with reserved(Path("runs"), "demo") if given is None else nullcontext(given) as out:
        _compare(out, args.epochs)


def _compare(out: Path, epochs: int | None) -> None:
    from m3g.evaluation.missing import without_views
    from m3g.experiments.default_set import METHODS, settings
    from m3g.experiments.synergy.runs import demo
    from m3g.training.loop.build import build_data
    from m3g.training.loop.fit import train
    from m3g.training.runs.evaluate import evaluate_run, linear_cca

    data = build_data(settings("m3g"))  # the same rows for both losses
    rows, pictures = [], []
    for loss in METHODS:
        config = settings(loss)
        config.encoder, config.loop.patience = "mlp", 0  # both losses start from random weights
        config.loop.epochs = 20 if epochs is None else epochs
        print(f"training with {loss}", flush=True)
        train(config, out / loss, data=data)
        report, drawn = evaluate_run(out / loss, data=data)
        numbers = {**report.numbers, **probes_on_fewer(report.missing, "linear")}
        rows.append((loss, *(f"{100 * numbers[column]:.1f}" for column in COLUMNS)))
        pictures += drawn
    parts = linear_cca(data, size=config.heads.embedding_size)
    assert parts is not None
    linear = {**report.linear_cca, **probes_on_fewer(without_views(*parts), "linear")}
    for title, numbers in (("linear CCA", linear), ("raw features", probes_on_fewer(report.missing, "linear_raw"))):
        rows.append((title, *(f"{100 * numbers[c]:.1f}" if c in numbers else "—" for c in COLUMNS)))
    print_table(["test split, %", *COLUMNS.values()], rows)
    for line in NOTES:
        print(line)
    print("training on sums of two digits", flush=True)
    sums = demo(out / "digit_sum", **({} if epochs is None else {"steps": 10 * epochs}))
    print_table(["sum of two digits, %", "retrieved"], [(loss, f"{100 * recall:.1f}") for loss, recall in sums.items()])
    for line in SUM_NOTES:
        print(line)
    for picture in pictures:
        print(f"picture   {picture}")
