"""`m3g demo`: the library in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DESCRIPTION = {
    "demo": """Train M3G with its defaults on the six-view digits, then the same network with pairwise InfoNCE, and
print both beside the raw features. A few minutes."""
}


def arguments(parser: Any, name: str) -> None:
    parser.add_argument("--out", type=str, default=None, help="folder for the two runs; by default the next demo-N")
    parser.add_argument("--epochs", type=int, default=None, help="passes over the data; by default that of m3g train")


def run(args: Any, name: str) -> int:
    from m3g.cli.listing import print_table
    from m3g.cli.train import next_run
    from m3g.experiments.default_set import COLUMNS, METHODS, raw_features, settings
    from m3g.training.build import build_data
    from m3g.training.evaluate import evaluate_run
    from m3g.training.fit import train

    out = Path(args.out) if args.out is not None else next_run(Path("runs"), "demo")
    if out.exists():
        raise ValueError(f"--out must be a folder that does not exist yet, but {out} does.")
    data = build_data(settings("m3g"))  # both train on the same rows
    rows, pictures = [], []
    for loss in METHODS:
        config = settings(loss)
        if args.epochs is not None:
            config.loop.epochs = args.epochs
        print(f"training with {loss}", flush=True)
        train(config, out / loss, data=data)
        report, drawn = evaluate_run(out / loss, data=data)
        rows.append((loss, *(f"{100 * report.numbers[column]:.1f}" for column in COLUMNS)))
        pictures += drawn
    raw = raw_features()
    rows.append(("raw features", *(f"{100 * raw[c]:.1f}" if c in raw else "—" for c in COLUMNS)))
    print_table(["test split, %", *COLUMNS.values()], rows)
    print("Raw views live in different spaces: their probes see all of them side by side, the rest does not apply.")
    for picture in pictures:
        print(f"picture   {picture}")
    return 0
