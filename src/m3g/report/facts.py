"""Content of a report: files of the run folder, and results computed from its network and data."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict, cast

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g.costs import CircularVariance
from m3g.data.storage.limits import parse_json
from m3g.evaluation import Embedded
from m3g.evaluation.map import tsne
from m3g.evaluation.missing import Missing
from m3g.nets import build_net
from m3g.report.compare import Measured
from m3g.solvers import solve
from m3g.training.loop.build import build_data
from m3g.training.loop.logs import Table
from m3g.training.runs.embed import embed
from m3g.training.runs.export import load, read_model
from m3g.training.runs.folder import Run
from m3g.training.runs.pictures import logged
from m3g.training.settings.config import flat

MAX_POINTS = 1200  # maximum number of points in the map, of all views together
MAX_COUPLED_OBJECTS = 16  # maximum number of objects in each coupling


class PointMap(TypedDict):
    """Map of test points.

    Attributes:
        rows: row number of each object.
        labels: class name of each object; None without labels.
        errors: circular variance of the points of each object.
        places: by view and object, the position in the unit square; None for missing entries and if there are at most
            three points.
    """

    rows: list[int]
    labels: list[str] | None
    errors: list[float]
    places: list[list[list[float] | None]]


class Results(TypedDict):
    """Content of `results.json`."""

    numbers: dict[str, float]
    matrices: dict[str, list[list[float]]]
    chance: dict[str, float]
    raw: dict[str, float]
    linear_cca: dict[str, float]
    missing: Missing
    views: list[str]
    num_test: int
    num_train: int


@dataclass(kw_only=True)
class RunFacts(Measured):
    """Content of the report of a run, in which all strings are user-supplied and must be escaped.

    Attributes:
        config: the settings, as YAML.
        environment: content of `environment.json`.
        matrices: matrices between views, by name.
        views: the names of the views.
        curves: steps and values of each logged quantity.
        couplings: n times the pair marginal of the first two views: `before`, of an untrained network with random
            weights, and `after`, of the trained network.
        map: positions of the test points.
        missing: scores with missing views.
    """

    config: str
    environment: Mapping[str, object]
    matrices: dict[str, list[list[float]]]
    views: list[str]
    curves: dict[str, tuple[list[float], list[float]]]
    couplings: dict[str, list[list[float]]]
    map: PointMap
    missing: Missing


def read_results(run: str | os.PathLike[str]) -> Results:
    """Return the validated content of `results.json`."""
    folder = Run.of(run)
    folder.open()
    if not folder.results.is_file():
        raise ValueError(f"run must have been evaluated, but {folder.path} has no results.json: use m3g evaluate.")
    try:
        content = parse_json(folder.results.read_text(encoding="utf-8"))
        return {
            "numbers": dict(content["numbers"]),
            "matrices": dict(content["matrices"]),
            "chance": dict(content["chance"]),
            "raw": dict(content["raw"]),
            "linear_cca": dict(content["linear_cca"]),
            "missing": cast("Missing", dict(content["missing"])),
            "views": list(content["views"]),
            "num_test": int(content["test_rows"]),
            "num_train": int(content["train_rows"]),
        }
    except KeyError as error:
        raise ValueError(
            f"{folder.results} has no entry {error}: probably written by an older version; run m3g evaluate again."
        ) from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder.results} is not a valid results file ({error}): run m3g evaluate again.") from error


def read_rows(run: str | os.PathLike[str]) -> dict[str, dict[int, float]]:
    """Return the contributions of test rows to the scores, by measure and row; empty if the run has no rows.csv."""
    lines = Table(Run(run).rows).rows()
    names = [name for name in (lines[0] if lines else {}) if name != "row"]
    return {name: {int(line["row"]): line.get(name, math.nan) for line in lines} for name in names}


def read_measured(run: str | os.PathLike[str], name: str) -> Measured:
    """Return the scores of a run for `m3g compare`."""
    return _measured(run, name, read_results(run))


def _measured(run: str | os.PathLike[str], name: str, results: Results) -> Measured:
    settings = flat(Run.of(run).open().to_dict())
    references = {"linear CCA": results["linear_cca"], "raw": results["raw"], "chance": results["chance"]}
    return Measured(
        name, results["numbers"], results["num_test"], results["num_train"], settings, read_rows(run), references
    )


def collect(run: str | os.PathLike[str], *, trust: bool = False) -> RunFacts:
    """Return the content of the report; the test split is embedded by the trained network and an untrained one."""
    folder = Run.of(run)
    results = read_results(folder)
    net, data = load(folder, trust=trust, scaled=True), build_data(folder.open(), folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        untrained = build_net(**read_model(folder)[0], trust=trust)
        before = embed(untrained, data, "test")
    test = embed(net, data, "test")
    return RunFacts(
        **vars(_measured(folder, folder.path.resolve().name, results)),
        config=folder.open().to_yaml(),
        environment=folder.facts,
        curves=logged(folder),
        couplings={"before": _coupling(before), "after": _coupling(test)},
        map=_map(test),
        matrices=results["matrices"],
        views=results["views"],
        missing=results["missing"],
    )


def _coupling(test: Embedded) -> list[list[float]]:
    """Return n times the pair marginal of views 0 and 1 for n <= 16 test objects.

    The objects are the first ones that have the first three views (both views if k = 2). The result is empty for fewer
    than two. The cost is the circular variance of these views, with epsilon 0.05.
    """
    k = min(3, len(test.views))
    rows = test.present[:k].all(0).nonzero().flatten()[:MAX_COUPLED_OBJECTS]
    if len(rows) < 2:
        return []
    views = torch.stack([view[rows] for view in test.views[:k]])
    solution = solve(CircularVariance()(normalize(views.double(), dim=-1)), epsilon=0.05)
    pairs: list[list[float]] = (len(rows) * solution.pair_marginal(0, 1)).clamp(0, 1).tolist()
    return pairs


def _map(test: Embedded) -> PointMap:
    """Return the map of the test points by t-SNE, for at most `MAX_POINTS` points."""
    assert test.embeddings is not None
    assert test.index is not None
    units = normalize(test.embeddings.double(), dim=-1)
    k, n = units.shape[:2]
    rows = torch.linspace(0, n - 1, min(n, max(2, MAX_POINTS // k))).long().unique()
    present = test.present[:, rows]
    places = torch.full((k, len(rows), 2), torch.nan, dtype=torch.float64)
    placed = present & (present.sum() > 3)  # t-SNE requires more points than three
    if bool(placed.any()):
        points = tsne(units[:, rows][present]).double()
        low, high = points.min(0).values, points.max(0).values
        places[present] = (points - low) / (high - low).clamp_min(1e-9)
    labels = None if test.labels is None else [test.label_name(int(row)) for row in rows]
    return {
        "rows": [int(test.index[row]) for row in rows],
        "labels": labels,
        "errors": _errors(units[:, rows], present),
        "places": [[[round(v, 4) for v in p] if placed[l, i] else None for i, p in enumerate(view)]
                   for l, view in enumerate(places.tolist())],
    }  # fmt: skip


def _errors(units: Tensor, present: Tensor) -> list[float]:
    """Return 1 - |mean of an object's unit vectors|²: 0 if its k views coincide, about 1 - 1/k if unrelated."""
    weight = present.double().unsqueeze(-1)
    mean = (units * weight).sum(0) / weight.sum(0)
    return [round(float(value), 4) for value in (1 - mean.square().sum(-1)).clamp(0, 1)]
