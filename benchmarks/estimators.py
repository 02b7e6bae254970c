"""Compare k-view estimators of three libraries on the same sets: `python -m benchmarks.estimators`.

Requires cca-zoo and polyview (extra `test`). On each of five random splits, a method is trained on 60 % of the rows,
with the setting of its grid that has the best recall at 1 on a held-out third of these rows. Scores are measured on the
other 40 %. All methods learn as many features as the narrowest view has, the limit of cca-zoo, but at most ten. Writes
benchmarks/results/estimators.md.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cca_zoo.linear import GCCA, MCCA
from polyview import MCCA as PolyviewMCCA
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from m3g.data import MultipleFeatures
from m3g.evaluation import retrieval
from m3g.sklearn import MultiViewEmbedding

SEEDS = range(5)
Views = list[np.ndarray]
Embed = Callable[[Views], np.ndarray]


def six_view_digits() -> tuple[Views, np.ndarray]:
    data = MultipleFeatures()
    parts = [data.arrays(split) for split in ("train", "test")]
    views = [np.concatenate([part[0][l].numpy() for part in parts]) for l in range(6)]
    return views, np.concatenate([part[2].numpy() for part in parts])


def tumour_statistics() -> tuple[Views, np.ndarray]:
    """Return three views: mean, standard error and worst value of ten measurements of a tumour."""
    X, y = load_breast_cancer(return_X_y=True)
    return np.split(X, 3, axis=1), y


def digit_quadrants() -> tuple[Views, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    images = X.reshape(-1, 8, 8)
    return [images[:, i : i + 4, j : j + 4].reshape(-1, 16) for i in (0, 4) for j in (0, 4)], y


SETS = {
    "six-view digits (k = 6, 1800 rows)": six_view_digits,
    "tumour statistics (k = 3, 569 rows)": tumour_statistics,
    "quadrants of digits (k = 4, 1797 rows)": digit_quadrants,
}


def components(views: Views) -> int:
    return min(10, *(view.shape[1] for view in views))


def projected(model: Any) -> Embed:
    return lambda views: np.stack(model.transform(views))


def cca_zoo(kind: Any) -> Callable[[Views, float, int], Embed]:
    return lambda views, shrinkage, seed: projected(kind(components(views), shrinkage=shrinkage).fit(views))


def polyview(views: Views, regularisation: float, seed: int) -> Embed:
    model = PolyviewMCCA(components(views), regularisation=regularisation, output="list", eigen_solver="dense")
    return projected(model.fit(views))


def m3g(loss: str) -> Callable[[Views, float, int], Embed]:
    def fit(views: Views, temperature: float, seed: int) -> Embed:
        options = {"temperature": temperature}
        model = MultiViewEmbedding(components(views), loss=loss, loss_options=options, random_state=seed)
        return model.fit(views).transform_views

    return fit


METHODS: dict[str, tuple[Callable[[Views, float, int], Embed], tuple[float, ...]]] = {
    "cca-zoo `MCCA`": (cca_zoo(MCCA), (0.01, 0.1, 0.5)),
    "cca-zoo `GCCA`": (cca_zoo(GCCA), (0.01, 0.1, 0.5)),
    "polyview `MCCA`": (polyview, (0.01, 0.1, 1.0)),
    "m3g, loss `m3g`": (m3g("m3g"), (0.1, 0.2, 0.4)),
    "m3g, loss `infonce-pwe`": (m3g("infonce-pwe"), (0.1, 0.2, 0.4)),
}


def unit(points: np.ndarray) -> np.ndarray:
    return points / np.maximum(np.linalg.norm(points, axis=-1, keepdims=True), 1e-12)


def recall(points: np.ndarray) -> float:
    by_pair = retrieval(torch.from_numpy(points)).recall[1]
    return float(by_pair[~torch.eye(len(points), dtype=torch.bool)].mean())


def measure(method: str, views: Views, labels: np.ndarray, seed: int) -> list[float]:
    """Return probe accuracy on the mean of the views and on single views, recall at 1 (in %), and seconds to fit."""
    fit, grid = METHODS[method]
    order = np.random.default_rng(seed).permutation(len(labels))
    cut, inner = int(0.6 * len(order)), int(0.4 * len(order))
    train, test = order[:cut], order[cut:]
    scalers = [StandardScaler().fit(view[train]) for view in views]

    def rows(part: np.ndarray) -> Views:
        return [scaler.transform(view[part]) for scaler, view in zip(scalers, views)]

    chosen = max(grid, key=lambda value: recall(fit(rows(train[:inner]), value, seed)(rows(train[inner:]))))
    start = time.process_time()
    embed = fit(rows(train), chosen, seed)
    seconds = time.process_time() - start
    seen, new = unit(embed(rows(train))), unit(embed(rows(test)))
    probe = LogisticRegression(max_iter=1000, C=100).fit(seen.mean(0), labels[train])
    single = float(np.mean([probe.score(view, labels[test]) for view in new]))
    return [100 * probe.score(new.mean(0), labels[test]), 100 * single, 100 * recall(new), seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "estimators.md")
    out = parser.parse_args().out
    warnings.simplefilter("ignore", ConvergenceWarning)
    lines = []
    for title, load in SETS.items():
        views, labels = load()
        lines += ["", title, "", "| | all views, % | one view, % | recall at 1, % | fit, s |", "| --- " * 5 + "|"]
        for method in METHODS:
            scores = np.array([measure(method, views, labels, seed) for seed in SEEDS])
            cells = [f"{mean:.1f} ± {spread:.1f}" for mean, spread in zip(scores.mean(0), scores.std(0, ddof=1))][:3]
            lines.append(f"| {method} | {' | '.join(cells)} | {scores[:, 3].mean():.2g} |")
            print(lines[-1], flush=True)
    out.write_text("\n".join(lines[1:]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
