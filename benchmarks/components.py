"""Size of the representation of `MultiViewEmbedding`: `python -m benchmarks.components --data FOLDER`.

FOLDER contains the files of `benchmarks.defaults` (sets without files are skipped). On every split, 70 % of the rows
are for training and 30 % for testing. Apart from `n_components`, the estimator has its defaults. Results are stored
one by one, so that an interrupted run can be continued. Writes benchmarks/results/components.json and components.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from benchmarks.defaults import SETS
from m3g.evaluation.paired import paired
from m3g.experiments.sources.files import MissingData
from m3g.sklearn import MultiViewEmbedding, Views

SIZES = (16, 32, 64)
MEASURES = {"recall_at_1": "R@1", "linear_mean": "linear probe"}


def measured(views: Views, labels: np.ndarray | None, size: int, *, seed: int) -> dict[str, float]:
    """Return R@1 and the accuracy of a linear probe on the test rows in percent, and the seconds of fit and R@1."""
    order = np.random.default_rng(seed).permutation(len(views))
    train, test = np.split(order, [round(0.7 * len(order))])
    start = time.process_time()
    model = MultiViewEmbedding(size, random_state=seed).fit(views[train])
    numbers = {"recall_at_1": 100 * model.score(views[test]), "seconds": time.process_time() - start}
    if labels is not None:
        probe = LogisticRegression(max_iter=1000, C=100).fit(model.transform(views[train]), labels[train])
        numbers["linear_mean"] = 100 * probe.score(model.transform(views[test]), labels[test])
    return numbers


def table(results: dict[str, dict[str, float]]) -> str:
    """Return one row per set with means over the seeds, the mean over the sets, and the differences from the first."""
    columns = [*itertools.product(MEASURES, SIZES), *(("seconds", size) for size in SIZES)]
    scores: dict[tuple[str, int], dict[str, float]] = {column: {} for column in columns}
    names = list(dict.fromkeys(key.split("|")[0] for key in results))
    seeds = sorted({key.split("|")[2] for key in results})
    for name, (measure, size) in itertools.product(names, columns):
        values = [results.get(f"{name}|{size}|{seed}", {}).get(measure) for seed in seeds]
        if None not in values:
            scores[measure, size][name] = statistics.fmean(values)
    rows = [[name, *(f"{scores[c][name]:.1f}" if name in scores[c] else "—" for c in columns)] for name in names]
    rows.append(["**mean**", *(f"{statistics.fmean(scores[column].values()):.1f}" for column in columns)])
    titles = MEASURES | {"seconds": "seconds"}
    heads = [f"seeds {', '.join(seeds)}", *(f"{titles[measure]}, {size}" for measure, size in columns)]
    lines = ["Scores in % and training time in seconds, by the number of components.", ""]
    lines += ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]
    for measure, size in itertools.product(MEASURES, SIZES[1:]):
        d = paired(scores[measure, size], scores[measure, SIZES[0]])
        interval = f"{d.mean:+.1f} [{d.mean - d.half_width:+.1f}, {d.mean + d.half_width:+.1f}]"
        lines += ["", f"{MEASURES[measure]}, {size} minus {SIZES[0]} components: {interval} (mean over sets, 95 %)."]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.components", description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS), metavar="SET")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    path = options.results / "components.json"
    results: dict[str, dict[str, float]] = json.loads(path.read_text()) if path.exists() else {}
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    for seed, name in itertools.product(options.seeds, options.sets):
        try:
            content = SETS[name](options.data)
        except MissingData as error:
            print(f"{name} is skipped: {error}", flush=True)
            continue
        labels = content.get("label")
        views = Views([np.asarray(view) for key, view in content.items() if key != "label"])
        for size in SIZES:
            key = f"{name}|{size}|{seed}"
            if key not in results:
                results[key] = measured(views, labels, size, seed=seed)
                print(key, " ".join(f"{title} {value:.1f}" for title, value in results[key].items()), flush=True)
                path.write_text(json.dumps(results, indent=1) + "\n")
    (options.results / "components.md").write_text(table(results), encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()
