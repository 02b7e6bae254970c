"""False alarms of `m3g audit`: `python -m benchmarks.audit --data FOLDER`.

Every run is `m3g train --views ... --mismatch true --data_options.split_seed SEED --seed SEED` without loggers and
intermediate evaluations (`--loop.evaluate_every 0`), on the sets of `benchmarks.defaults` and on emoji
(emoji_5vendors_32.npz), once with clean rows and once with 5 % of the training entries swapped between objects
(`--data_options.swapped 0.05`). A row is a false alarm if `m3g audit` lists at least one of its entries that was not
swapped. Results are stored one by one, so that an interrupted run can be continued. Writes
benchmarks/results/audit.{json,md}.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch
from sklearn.decomposition import PCA

from benchmarks.defaults import SETS, measure_sets, settings
from m3g.experiments.sources.emoji import read_emoji
from m3g.experiments.views.sets import Arrays
from m3g.training.loop.build import build_data
from m3g.training.loop.fit import train
from m3g.training.mismatch.audit import audit
from m3g.training.settings.config import Config

VENDORS, COMPONENTS = 3, 100


def emoji(folder: Path) -> Arrays:
    """Return the renderings of each emoji by three vendors, each reduced to 100 principal components."""
    renderings = list(read_emoji(folder).items())[:VENDORS]
    reduced = {
        name: PCA(COMPONENTS, random_state=0).fit_transform(x.reshape(len(x), -1) / 255) for name, x in renderings
    }
    return {name.replace("-", "_"): view.astype(np.float32) for name, view in reduced.items()}


READERS = {**SETS, "emoji": emoji}
ARMS = {"clean": 0.0, "swapped": 0.05}  # fraction of swapped training entries


def measured(file: Path, arm: str, seed: int) -> dict[str, float]:
    """Return the percentages of rows that are false alarms and, if there are swaps, of swaps that are listed."""
    content = settings(file, seed=seed) | {"mismatch": True}
    content["data_options"]["swapped"] = ARMS[arm]
    config = Config.from_dict(content)
    data = build_data(config)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        train(config, Path(folder) / "run", data=data)
        entries = [entry for entry, _ in audit(Path(folder) / "run").entries]
    rows = data.num_rows("train")
    index: torch.Tensor = data.datasets["train"].index  # type: ignore[attr-defined]
    place = {int(row): i for i, row in enumerate(index)}
    origin = getattr(data, "swapped_from", None)
    wrong = torch.zeros(data.k, rows, dtype=torch.bool) if origin is None else origin != torch.arange(rows)
    listed = torch.zeros_like(wrong)
    for entry in entries:
        listed[data.view_names.index(entry.view), place[entry.row]] = True
    numbers = {"false_alarms": 100 * float((listed & ~wrong).any(0).double().mean())}
    if bool(wrong.any()):
        numbers["detected"] = 100 * float(listed[wrong].double().mean())
    return numbers


def table(results: dict[str, dict[str, float]]) -> str:
    """Return one row per set with the means over its splits, and the largest fraction of false alarms."""
    swapped = f"{100 * ARMS['swapped']:g} % swapped"
    lines = [f"| in % | split seed | false alarms, clean rows | false alarms, {swapped} | detected swaps |"]
    lines.append("| --- " * 5 + "|")
    for name in READERS:
        seeds = [key.split("|")[2] for key in results if key.startswith(f"{name}|clean|")]
        clean, swaps = ([results.get(f"{name}|{part}|{seed}") for seed in seeds] for part in ARMS)
        columns = [(clean, "false_alarms"), (swaps, "false_alarms"), (swaps, "detected")]
        values = [[run[measure] for run in runs if run] for runs, measure in columns]
        if any(values):
            cells = [f"{statistics.fmean(part):.1f}" if part else "—" for part in values]
            lines.append(f"| {name} | {', '.join(seeds)} | " + " | ".join(cells) + " |")
    most = max(run["false_alarms"] for key, run in results.items() if "|clean|" in key)
    lines += ["", f"Clean rows: at most {most:.1f} % of the rows of a run are false alarms."]
    return "\n".join(lines) + "\n"


def main() -> None:
    folder = Path(__file__).parent / "results"
    results, options = measure_sets("audit", __doc__, ARMS, measured, folder, seed=5, readers=READERS)
    text = table(results)
    (options.results / "audit.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
