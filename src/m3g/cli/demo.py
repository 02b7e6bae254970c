"""`m3g demo`: the library in one table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

DESCRIPTION = {
    "demo": """Train M3G with its defaults on the six-view digits, then the same network with pairwise InfoNCE, and
print both beside the raw features. Then train on sums of digits, which only three views together show. A few
minutes."""
}


COLUMNS = {
    "linear_mean": "linear",
    "one_view": "one view",
    "most_absent": "70 % absent",
    "linear_transfer": "moved",
    "recall_at_1": "found",
    "polymatching": "matched",
}
NOTES = (
    "linear: a probe on the mean of the views, tested on all six, on one view alone, with 70 % of the entries absent,",
    "and, trained on one view, moved to another. found: the right object of 400, first, from one view in another.",
    "matched: objects whose six views the best polymatching joins. Raw features are all views side by side (what is",
    "absent at its mean), which share no space. With whole rows they say most; with few views, aligned ones do.",
)
SUM_NOTES = (
    "found: pixels of a digit a and profiles of a digit b are given; is the nearest drawing of the third view one of",
    "(a + b) mod 10? Chance is 10 %. Any two views are independent, so that losses of pairs of views learn nothing.",
)


def probes_on_fewer(missing: Mapping[str, Any], name: str) -> dict[str, float]:
    """A linear probe on all views, on one alone (mean over the views), and with most entries absent."""
    alone = statistics.fmean(part[name] for part in missing["subsets"] if len(part["views"]) == 1)
    curve = missing["curve"]
    return {"linear_mean": curve[name][0], "one_view": alone, "most_absent": curve[name][-1]}


def arguments(parser: Any, name: str) -> None:
    parser.add_argument("--out", type=str, default=None, help="folder for the two runs; by default the next demo-N")
    parser.add_argument("--epochs", type=int, default=None, help="passes over the data; by default that of m3g train")


def run(args: Any, name: str) -> int:
    from m3g.training.runs.folder import reserved

    if args.out is not None and Path(args.out).exists():
        raise ValueError(f"--out must be a folder that does not exist yet, but {args.out} does.")
    with reserved(Path("runs"), "demo") if args.out is None else nullcontext(Path(args.out)) as out:
        return _compare(out, args.epochs)


def _compare(out: Path, epochs: int | None) -> int:
    from m3g.cli.listing import print_table
    from m3g.experiments.default_set import METHODS, settings
    from m3g.experiments.synergy.runs import demo
    from m3g.training.loop.build import build_data
    from m3g.training.loop.fit import train
    from m3g.training.runs.evaluate import evaluate_run

    data = build_data(settings("m3g"))  # both train on the same rows
    rows, pictures = [], []
    for loss in METHODS:
        config = settings(loss)
        if epochs is not None:
            config.loop.epochs = epochs
        print(f"training with {loss}", flush=True)
        train(config, out / loss, data=data)
        report, drawn = evaluate_run(out / loss, data=data)
        numbers = {**report.numbers, **probes_on_fewer(report.missing, "linear")}
        rows.append((loss, *(f"{100 * numbers[column]:.1f}" for column in COLUMNS)))
        pictures += drawn
    raw = probes_on_fewer(report.missing, "linear_raw")
    rows.append(("raw features", *(f"{100 * raw[c]:.1f}" if c in raw else "—" for c in COLUMNS)))
    print_table(["test split, %", *COLUMNS.values()], rows)
    for line in NOTES:
        print(line)
    print("training on sums of two digits", flush=True)
    sums = demo(out / "digit_sum", **({} if epochs is None else {"steps": 10 * epochs}))
    print_table(["sum of two digits, %", "found"], [(loss, f"{100 * share:.1f}") for loss, share in sums.items()])
    for line in SUM_NOTES:
        print(line)
    for picture in pictures:
        print(f"picture   {picture}")
    return 0
