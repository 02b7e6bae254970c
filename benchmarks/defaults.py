"""Defaults of `m3g train`, linear CCA and the earlier defaults: `python -m benchmarks.defaults --data FOLDER`.

FOLDER contains the files of these sets (sets without files are skipped): Scene_15.mat, 100Leaves.mat, Reuters-1200.mat,
protein_fold_12views.npz, tcga_breast_3omics.npz, multi30k/train.LANGUAGE.gz, mosi_3views.npz, rosmap_3omics.npz,
3Sources.mat, BBCSport.mat, webkb.mat, in any subfolder; the digits are part of the package.

Every run is `m3g train --views ... --data_options.split_seed SEED --seed SEED` without loggers and intermediate
evaluations (`--loop.evaluate_every 0`), otherwise with the defaults; "before" adds `--encoder mlp --loop.epochs 20
--loop.patience 0`, the defaults of commit 9113af2. Results are stored one by one, so
that an interrupted run can be continued. Writes docs/results/defaults.json and prints the tables of
docs/results/defaults.md.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import itertools
import json
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from m3g.data import ViewsData
from m3g.evaluation import Embedded, LinearCCA, evaluate
from m3g.evaluation.paired import paired
from m3g.experiments.sources.files import MissingData, find_file
from m3g.experiments.sources.multiview import read_views
from m3g.experiments.views import sets
from m3g.training.loop.build import build_data
from m3g.training.loop.fit import train
from m3g.training.runs.embed import embed
from m3g.training.settings.config import Config

Result = dict[str, float]  # scores by name
ARMS = ("linear CCA", "before", "default")
BEFORE: dict[str, Any] = {"encoder": "mlp", "loop": {"epochs": 20, "patience": 0, "evaluate_every": 0}}
MEASURES = {"recall_at_1": "R@1", "linear_mean": "linear probe"}
LANGUAGES, CAPTIONS, FEATURES = ("en", "de", "fr", "cs"), 1000, 300


def captions(folder: Path) -> sets.Arrays:
    """Return captions of 1000 images in four languages as TF-IDF, reduced to 300 features by an SVD."""
    views = {}
    for language in LANGUAGES:
        with gzip.open(find_file(folder, f"train.{language}.gz"), "rt", encoding="utf-8") as file:
            features = TfidfVectorizer(sublinear_tf=True).fit_transform(list(itertools.islice(file, CAPTIONS)))
        views[language] = TruncatedSVD(FEATURES, random_state=0).fit_transform(features).astype(np.float32)
    return views


def archive(name: str, *views: str) -> Callable[[Path], sets.Arrays]:
    """Return a reader of an `.npz` file with views and labels."""

    def read(folder: Path) -> sets.Arrays:
        with np.load(find_file(folder, name), allow_pickle=False) as file:
            return {key: file[key] for key in (*views, "label")}

    return read


def matlab(name: str) -> Callable[[Path], sets.Arrays]:
    return lambda folder: read_views(find_file(folder, name))


SETS: dict[str, Callable[[Path], sets.Arrays]] = {
    "digits (mfeat)": sets.digits,
    "Scene-15": sets.scenes,
    "100Leaves": sets.leaves,
    "Reuters": matlab("Reuters-1200.mat"),
    "protein fold": sets.SETS["proteins"].read,
    "TCGA": sets.SETS["tumours"].read,
    "Multi30k, TF-IDF": captions,
    "MOSI": archive("mosi_3views.npz", "text", "audio", "video"),
    "ROSMAP": archive("rosmap_3omics.npz", "mrna", "methylation", "mirna"),
    "3Sources": matlab("3Sources.mat"),
    "BBCSport": matlab("BBCSport.mat"),
    "webkb": matlab("webkb.mat"),
}


def settings(file: Path, *, seed: int) -> dict[str, Any]:
    with np.load(file) as content:
        names = [name for name in content.files if name != "label"]
        labels = {"labels": f"{file}:label"} if "label" in content.files else {}
    options = {"paths": [f"{file}:{name}" for name in names], "split_seed": seed, **labels}
    return {"data": "arrays", "data_options": options, "seed": seed, "logger": ["none"], "loop": {"evaluate_every": 0}}


def linear_cca(data: ViewsData) -> tuple[Embedded, Embedded]:
    parts = {split: data.arrays(split) for split in ("train", "test")}  # type: ignore[arg-type]
    views, mask, _ = parts["train"]
    divisors = [None if part is None else part[1] for part in data.scaling]
    projection = LinearCCA(views, mask, size=64, divisors=divisors)
    seen, unseen = (Embedded(torch.stack(projection(v)), labels=y, mask=m) for v, m, y in parts.values())
    return seen, unseen


def measured(file: Path, arm: str, seed: int) -> Result:
    """Return the scores of one arm on the test split, in percent."""
    content = settings(file, seed=seed)
    config = Config.from_dict(content | BEFORE if arm == "before" else content)
    data = build_data(config)
    if arm == "linear CCA":
        parts = linear_cca(data)
    else:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            net = train(config, Path(folder) / "run", data=data).net
        assert net is not None
        parts = embed(net, data, "train"), embed(net, data, "test")
    numbers = evaluate(*parts, transfer=False, polymatching=False).numbers
    return {name: 100 * numbers[name] for name in MEASURES if name in numbers}


def table(results: dict[str, dict[str, float]]) -> str:
    """Return one row per set with the means over the splits that have all three arms, and the means over the sets."""
    seeds = sorted({key.split("|")[2] for key in results})
    columns = [(measure, arm) for measure in MEASURES for arm in ARMS]
    rows, means = [], {column: [] for column in columns}
    lowest = {measure: [] for measure in MEASURES}
    for name in SETS:
        cells = {}
        complete = [seed for seed in seeds if all(f"{name}|{arm}|{seed}" in results for arm in ARMS)]
        for measure, arm in columns:
            values = [results[f"{name}|{arm}|{seed}"].get(measure) for seed in complete]
            known = [value for value in values if value is not None]
            cells[measure, arm] = statistics.fmean(known) if known else None
        if all(cells["recall_at_1", arm] is None for arm in ARMS):
            continue
        rows.append([name, *("—" if cells[column] is None else f"{cells[column]:.1f}" for column in columns)])
        for measure in MEASURES:
            values = [cells[measure, arm] for arm in ARMS]
            if None not in values:
                lowest[measure].append((values[2] / max(values[:2]), name))
                for arm in ARMS:
                    means[measure, arm].append(cells[measure, arm])
    rows.append(["**mean**", *(f"{statistics.fmean(means[column]):.1f}" for column in columns)])
    heads = ["test split, %", *(f"{MEASURES[measure]}, {arm}" for measure, arm in columns)]
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]
    for measure, ratios in lowest.items():
        least, name = min(ratios)
        heading = MEASURES[measure][0].upper() + MEASURES[measure][1:]
        title = f"{heading}: the smallest ratio of the default to the better of the other two"
        ours, *others = (dict(enumerate(means[measure, arm])) for arm in ("default", "linear CCA", "before"))
        differences = [paired(ours, other) for other in others]
        gains = [f"{d.mean:+.1f} [{d.mean - d.half_width:+.1f}, {d.mean + d.half_width:+.1f}]" for d in differences]
        lines += [
            "",
            f"{title} is {least:.2f} ({name}). Mean differences over the sets, with 95 % intervals: default minus "
            f"linear CCA {gains[0]}, default minus before {gains[1]}.",
        ]
    return "\n".join([f"Split seeds: {', '.join(seeds)}.", "", *lines, ""])


def measure_sets(
    name: str,
    description: str,
    arms: Iterable[str],
    measure: Callable[[Path, str, int], Result],
    results: Path,
    *,
    seed: int = 0,
    readers: Mapping[str, Callable[[Path], sets.Arrays]] = SETS,
) -> tuple[dict[str, Result], argparse.Namespace]:
    """Measure every arm on the sets and with the seeds of the command line, and store the results in NAME.json.

    Stored results are not measured again. Return the results by `SET|ARM|SEED`, and the options of the command line.

    Args:
        name: NAME, the name of the program `benchmarks.NAME`.
        description: help of the program.
        arms: names of the arms.
        measure: function that returns the scores of a file with views, an arm and a seed.
        results, seed: default folder of NAME.json, and default seed.
        readers: functions that read the sets.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description.split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[seed])
    parser.add_argument("--sets", nargs="+", default=list(readers), choices=list(readers), metavar="SET")
    parser.add_argument("--results", type=Path, default=results)
    options = parser.parse_args()
    path = options.results / f"{name}.json"
    scores: dict[str, Result] = json.loads(path.read_text()) if path.exists() else {}
    torch.set_num_threads(1)
    for seed, data in itertools.product(options.seeds, options.sets):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "views.npz"
            try:
                np.savez(file, **readers[data](options.data))
            except MissingData as error:
                print(f"{data} is skipped: {error}", flush=True)
                continue
            for arm in arms:
                key = f"{data}|{arm}|{seed}"
                if key not in scores:
                    scores[key] = measure(file, arm, seed)
                    print(key, " ".join(f"{value:.1f}" for value in scores[key].values()), flush=True)
                    path.write_text(json.dumps(scores, indent=1) + "\n")
    return scores, options


def main() -> None:
    folder = Path(__file__).parents[1] / "docs" / "results"
    results, options = measure_sets("defaults", __doc__, ARMS, measured, folder)
    print(table({key: value for key, value in results.items() if int(key.split("|")[2]) in options.seeds}))


if __name__ == "__main__":
    main()
