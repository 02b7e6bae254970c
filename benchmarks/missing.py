"""Imputation of missing views in training: `python -m benchmarks.missing --data FOLDER`.

FOLDER is that of `m3g reproduce views`. Candidates, for an object with p of k views present:

    zero            the zero vector, similarity 0 to everything
    mean            the normalised mean of its present views, without gradient
    mean, gradient  the same with gradient
    rescaled        the zero vector; present views are multiplied by sqrt((k - 1) / (p - 1)), so that the similarities
                    of a present view to the others of its object add up as with k views
    neutral         for the product cost: the factor 1 / sqrt(d), so that a tuple is scored by the views present

and, for comparison, two losses of the InfoNCE family that omit missing entries. Results are stored one by one, so that
an interrupted run can be continued. Writes benchmarks/results/missing.{json,md}.
"""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

import m3g
from benchmarks.small_trainings import MEASURES, PROBLEMS, Objective, Problem, command, store, stored, train

# Every row keeps a view, so at most two thirds of the entries of three views can be missing. With four views and a rate
# above 0.65, a batch may have no two objects with the same two views, which pairwise losses do not support.
RATES = (0.25, 0.5, 0.6)
TEMPERATURES, SEEDS = (0.07, 0.2), (0, 1)
MORE = (Problem("proteins", 4, 32),)
PRODUCT_RATE, PRODUCT = 0.5, (Problem("scenes", 3, 32), Problem("leaves", 3, 32))


def filled(points: Tensor, mask: Tensor, how: str) -> Tensor:
    """Return points (k, n, d) with missing ones replaced."""
    present = mask.unsqueeze(-1)
    kept = torch.where(present, points, 0.0)
    if how.startswith("mean"):
        mean = normalize(kept.sum(0), dim=-1, eps=1e-3)
        return torch.where(present, points, mean if how.endswith("gradient") else mean.detach())
    if how == "rescaled":
        number = mask.sum(0).clamp(min=2)
        return kept * ((len(points) - 1) / (number - 1)).sqrt().unsqueeze(-1)
    if how == "neutral":
        return torch.where(present, points, points.shape[-1] ** -0.5)
    return kept


def gap(how: str, cost: str, temperature: float) -> Objective:
    loss = m3g.M3GLoss(temperature=temperature, cost=cost, normalize=False)
    return lambda points, mask: loss(filled(points, mask, how))


def candidates(cost: str, temperature: float) -> dict[str, Objective]:
    ways = ["zero", "mean", "mean, gradient", "rescaled"] if cost == "cv" else ["neutral", "mean", "mean, gradient"]
    objectives = {f"{cost}: {how}": gap(how, cost, temperature) for how in ways}
    if cost == "cv":
        for name in ("infonce-ave", "infonce-pwe"):
            pairwise = m3g.losses.build(name, temperature=temperature)
            objectives[name] = lambda points, mask, loss=pairwise: loss(points, mask=mask)
    return objectives


def run(source: Path, results: Path) -> None:
    path = results / "missing.json"
    scores = stored(path)
    tasks = [("cv", problem) for problem in (*PROBLEMS, *MORE)] + [("product", problem) for problem in PRODUCT]
    for seed, (cost, problem), rate in itertools.product(SEEDS, tasks, (RATES[1], RATES[2], RATES[0])):
        if cost == "product" and rate != PRODUCT_RATE:
            continue
        for temperature in TEMPERATURES:
            for name, objective in candidates(cost, temperature).items():
                key = f"{problem.name}|{rate}|{temperature}|{name}|{seed}"
                if key not in scores:
                    scores[key] = train(problem, objective, source=source, seed=seed, missing=rate)
                    print(key, " ".join(f"{value:.1f}" for value in scores[key].values()), flush=True)
                    store(path, scores)
    (results / "missing.md").write_text(table(scores))


def table(scores: dict[str, dict[str, float]]) -> str:
    """Return means over seeds per set, rate and temperature, then the mean over all rows of a cost."""
    rows: dict[tuple[str, str], dict[str, list[str]]] = {}
    for key in scores:
        name, rate, temperature, way, _ = key.split("|")
        family = "product" if way.startswith("product") else "cv"
        rows.setdefault((family, f"{name}|{rate}|{temperature}"), {}).setdefault(way, []).append(key)
    lines = [__doc__.split("\n\n")[0].split(":")[0] + f" ({' / '.join(MEASURES)}, %)", ""]
    for family in ("cv", "product"):
        family_rows = {row: ways for (kind, row), ways in rows.items() if kind == family}
        if not family_rows:
            continue
        names = list(dict.fromkeys(way for ways in family_rows.values() for way in ways))
        lines += ["| set, missing, temperature | " + " | ".join(names) + " |", "| --- " * (len(names) + 1) + "|"]
        total: dict[str, list[list[float]]] = {way: [] for way in names}
        for row, ways in family_rows.items():
            cells = []
            for way in names:
                keys = ways.get(way, [])
                means = [statistics.fmean(scores[key][measure] for key in keys) for measure in MEASURES] if keys else []
                total[way] += [means] if means else []
                cells.append(" / ".join(f"{value:.1f}" for value in means))
            lines.append(f"| {row.replace('|', ', ')} | " + " | ".join(cells) + " |")
        means = [" / ".join(f"{statistics.fmean(column):.1f}" for column in zip(*total[way])) for way in names]
        lines += ["| **mean** | " + " | ".join(means) + " |", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    command("missing", __doc__.split("\n\n")[0], run)
