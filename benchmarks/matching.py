"""Matching of real embeddings: `python -m benchmarks.matching --data FOLDER`.

For each set of `benchmarks.small_trainings`, `MultiViewEmbedding` is trained on 60 % of the rows, and 200 of the others
are matched in three views whose rows are shuffled. The first table shows the percentage of correct pairs of rows, and
the number of rows in no tuple. In the second table, 40 of the 200 rows of each view have no partner, and the
calibration error of membership probabilities is measured without and with 40 known objects. Writes
benchmarks/results/matching.md.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

import m3g
from benchmarks.small_trainings import PROBLEMS, command, load_rows
from m3g.losses.convergence import ConvergenceWarning
from m3g.sklearn import MultiViewEmbedding

K, ROWS, ORPHANS, KNOWN, SEEDS = 3, 200, 40, 40, (0, 1, 2)
Views = list[np.ndarray]


def pairwise(views: Views) -> np.ndarray:
    """Assign every view to the first one separately."""
    rest = [linear_sum_assignment(-views[0] @ view.T)[1] for view in views[1:]]
    return np.stack([np.arange(len(views[0])), *rest], 1)


def alternating(views: Views) -> np.ndarray:
    """Start from `pairwise` and reassign one view at a time to the mean of the others, until nothing changes."""
    tuples = pairwise(views)
    for _ in range(100):
        before = tuples.copy()
        for m in range(1, len(views)):
            centres = sum(views[l][tuples[:, l]] for l in range(len(views)) if l != m)
            tuples[:, m] = linear_sum_assignment(-centres @ views[m].T)[1]
        if (tuples == before).all():
            break
    return tuples


def coupling(views: Views) -> np.ndarray:
    return m3g.match(views).tuples.numpy()


def one_to_one(views: Views) -> np.ndarray:
    return m3g.match(views, one_to_one=True).tuples.numpy()


METHODS: dict[str, Callable[[Views], np.ndarray]] = {
    "pairwise Hungarian": pairwise,
    "alternating Hungarian": alternating,
    "`m3g.match`": coupling,
    "`m3g.match(one_to_one=True)`": one_to_one,
}


def embeddings(name: str, source: Path, seed: int) -> Views:
    """Return unit embeddings of the 40 % of the rows that were not used for training."""
    views, _ = load_rows(name, K, source)
    order = np.random.default_rng(seed).permutation(len(views[0]))
    cut = int(0.6 * len(order))
    first, second = ([view.numpy()[part] for view in views] for part in (order[:cut], order[cut:]))
    points = MultiViewEmbedding(32, random_state=seed).fit(first).transform_views(second)
    return list(points / np.linalg.norm(points, axis=-1, keepdims=True))


def shuffled(points: Views, seed: int, orphans: int) -> tuple[Views, list[np.ndarray]]:
    """Draw 200 shuffled rows per view, `orphans` of them in that view only; return them and the object of each row."""
    rng = np.random.default_rng(seed)
    common = ROWS - orphans
    numbers = [
        rng.permutation([*range(common), *range(common + l * orphans, common + (l + 1) * orphans)]) for l in range(K)
    ]
    return [view[number] for view, number in zip(points, numbers)], numbers


def run(source: Path, results: Path) -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)  # probabilities of the coupling are not used
    whole: dict[str, dict[str, list[float]]] = {method: {} for method in METHODS}
    unused: dict[str, list[float]] = {method: [] for method in METHODS}
    partial: dict[str, list[tuple[float, float, float, float]]] = {}
    for problem in PROBLEMS:
        for seed in SEEDS:
            points = embeddings(problem.name, source, seed)
            views, numbers = shuffled(points, seed, 0)
            for method, match in METHODS.items():
                tuples = match(views)
                objects = np.stack([numbers[l][tuples[:, l]] for l in range(K)], 1)
                correct = 100 * float((objects == np.roll(objects, 1, axis=1)).mean())
                whole[method].setdefault(problem.name, []).append(correct)
                unused[method].append(statistics.fmean(ROWS - len(set(tuples[:, l])) for l in range(K)))
            if len(points[0]) >= ROWS + (K - 1) * ORPHANS:
                partial.setdefault(problem.name, []).append(unmatched(*shuffled(points, seed, ORPHANS), seed))
            print(problem.name, seed, {method: whole[method][problem.name][-1] for method in METHODS}, flush=True)
    (results / "matching.md").write_text(table(whole, unused, partial))


def unmatched(views: Views, numbers: list[np.ndarray], seed: int) -> tuple[float, float, float, float]:
    """Return four scores of a matching in which some rows are orphans, that is, have no partner.

    The scores are the percentage of orphans left unmatched and the percentage of other rows matched with a row of their
    object and, for a one-to-one matching of the same rows, the calibration errors without and with known objects.
    """
    tuples = m3g.match(views, allow_unmatched=True).tuples.numpy()
    objects = np.stack([np.where(tuples[:, l] >= 0, numbers[l][tuples[:, l]], -1 - l) for l in range(K)], 1)
    present = tuples >= 0
    orphan = objects >= ROWS - ORPHANS
    alone = present & (present.sum(1, keepdims=True) == 1)
    matched = np.stack([(np.delete(objects, l, 1) == objects[:, [l]]).any(1) for l in range(K)], 1)
    sample = np.random.default_rng(seed).choice(np.unique(np.concatenate(numbers)), KNOWN, replace=False)
    known = [
        [int(np.flatnonzero(objects_of_view == i)[0]) if i in objects_of_view else -1 for objects_of_view in numbers]
        for i in sample
    ]
    raw, calibrated = (
        calibration_error(m3g.match(views, one_to_one=True, known=rows), numbers, sample) for rows in (None, known)
    )
    return 100 * alone[orphan].mean(), 100 * matched[present & ~orphan].mean(), raw, calibrated


def calibration_error(matching: m3g.Matching, numbers: list[np.ndarray], known: np.ndarray) -> float:
    """Return the expected calibration error of the memberships, in five bins, over the rows of unknown objects."""
    assert matching.memberships is not None
    objects = np.stack([numbers[l][matching.tuples[:, l].numpy()] for l in range(K)], 1)
    correct = np.stack([(np.delete(objects, l, 1) == objects[:, [l]]).any(1) for l in range(K)], 1)
    unknown = ~np.isin(objects, known)
    correct, probability = correct[unknown], matching.memberships.numpy()[unknown]
    bins = np.minimum((5 * probability).astype(int), 4)
    return sum(
        abs(correct[bins == b].mean() - probability[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)
    )


def table(whole: dict, unused: dict, partial: dict) -> str:
    names = [problem.name for problem in PROBLEMS]
    lines = ["| correct pairs, % | " + " | ".join(names) + " | unused rows of 200 |", "| --- " * (len(names) + 2) + "|"]
    for method, scores in whole.items():
        cells = [f"{statistics.fmean(scores[name]):.1f}" for name in names]
        lines.append(f"| {method} | " + " | ".join(cells) + f" | {statistics.fmean(unused[method]):.1f} |")
    lines += [
        "",
        f"`m3g.match(allow_unmatched=True)` if {ORPHANS} of the {ROWS} rows of each view have no partner:",
        "",
    ]
    lines += [
        "| set | unmatched rows, of those without a partner, % | correctly matched rows, of those with a partner, % | "
        f"calibration error | calibration error with {KNOWN} known objects |"
    ]
    lines += ["| --- | --- | --- | --- | --- |"]
    for name, values in partial.items():
        means = [statistics.fmean(column) for column in zip(*values)]
        lines.append(f"| {name} | {means[0]:.1f} | {means[1]:.1f} | {means[2]:.2f} | {means[3]:.2f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command("matching", __doc__.split("\n\n")[0], run)
