"""Small training runs on the sets of `m3g reproduce views`, for comparisons that require many of them.

One MLP per view (hidden 128, d = 32), Adam at 3e-3 with cosine decay, 400 steps. 60 % of at most 2 000 rows are used
for training. The other 40 %, with all views present, give three scores in %: the linear probe on the mean of the views,
R@1 between ordered pairs of views, and R@1 from the mean of all other views.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from m3g.data.entries import drop_entries, seeded_draws
from m3g.evaluation import Probe
from m3g.experiments.views.sets import SETS

# Function of embeddings (k, n, d) of unit length and their mask (k, n) that returns the loss.
Objective = Callable[[Tensor, Tensor], Tensor]
MEASURES = ("linear probe", "R@1", "from all others")
STEPS, WIDTH, DIMENSIONS, RATE, MAX_ROWS = 400, 128, 32, 3e-3, 2000


@dataclass(frozen=True)
class Problem:
    """A data set, the number of its views that are used, and the batch size."""

    name: str
    k: int
    batch: int


PROBLEMS = (Problem("scenes", 3, 64), Problem("leaves", 3, 64), Problem("digits", 4, 32), Problem("reuters", 4, 32))


@cache
def load_rows(name: str, k: int, source: Path) -> tuple[list[Tensor], Tensor]:
    """Return k views (n, d_l) of at most 2 000 rows, and their labels (n,)."""
    entry = SETS[name]
    arrays = entry.read(source)
    order = torch.randperm(len(arrays["label"]), generator=torch.Generator().manual_seed(0))[:MAX_ROWS]
    views = [torch.as_tensor(arrays[view]).float()[order] for view in entry.views[:k]]
    labels = np.unique(arrays["label"], return_inverse=True)[1].ravel()  # some sets have names of classes
    return views, torch.as_tensor(labels)[order]


def train(problem: Problem, objective: Objective, *, source: Path, seed: int, missing: float = 0.0) -> dict[str, float]:
    """Train with the fraction `missing` of the training entries removed at random, and evaluate on complete rows."""
    views, labels = load_rows(problem.name, problem.k, source)
    torch.manual_seed(seed)
    order = torch.randperm(len(labels))
    cut = int(0.6 * len(labels))
    first, second = order[:cut], order[cut:]
    present = drop_entries(None, seeded_draws(problem.k, cut, seed=seed), fraction=missing, exact=True)
    scaled = []
    for view, mask in zip(views, present):
        known = view[first][mask]
        scaled.append((view - known.mean(0)) / known.std(0).clamp(min=1e-6))
    nets = nn.ModuleList(
        nn.Sequential(nn.Linear(view.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, DIMENSIONS)) for view in scaled
    )
    optimizer = torch.optim.Adam(nets.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        batch = torch.randperm(cut)[: problem.batch]
        points = torch.stack([net(view[first[batch]]) for net, view in zip(nets, scaled)])
        loss = objective(normalize(points, dim=-1), present[:, batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        embedded = normalize(torch.stack([net(view) for net, view in zip(nets, scaled)]), dim=-1)
    mean = embedded.mean(0)
    probe = Probe(mean[first], labels[first], kind="ridge").accuracy(mean[second], labels[second])
    test = embedded[:, second]
    pairs = statistics.fmean(recall_at_1(test[l], test[m]) for l, m in itertools.permutations(range(problem.k), 2))
    rest = statistics.fmean(recall_at_1(test.sum(0) - view, view) for view in test)
    return dict(zip(MEASURES, (100 * probe, 100 * pairs, 100 * rest)))


def recall_at_1(queries: Tensor, gallery: Tensor) -> float:
    """Return the fraction of queries whose own row is the nearest in the gallery."""
    return float(((queries @ gallery.T).argmax(1) == torch.arange(len(gallery))).double().mean())


def stored(path: Path) -> dict[str, dict[str, float]]:
    """Return the stored results, so that an interrupted run can be continued."""
    return json.loads(path.read_text()) if path.is_file() else {}


def store(path: Path, results: dict[str, dict[str, float]]) -> None:
    path.write_text(json.dumps(results, indent=1) + "\n")


def command(name: str, description: str, run: Callable[[Path, Path], None]) -> None:
    """Parse `--data` and `--results` and call `run(data, results)` with one thread."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets of `m3g reproduce views`")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="output folder")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run(options.data, options.results)
