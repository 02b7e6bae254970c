"""Circular variance against circular standard deviation (the paper's Table 4); `m3g reproduce cost`.

The circular variance stands in both of its scales: that of the paper's formula, and that of its Algorithm 2. The
standard deviation has no structure that the exact solver uses, so its k = 4 runs hold all n^4 tuples; the laptop's
batch is n = 16 here.
"""

from __future__ import annotations

from m3g.experiments.engine.spec import Experiment, Request, RunSpec
from m3g.experiments.images import runs as image_runs
from m3g.experiments.images import tables as image_tables

COSTS = ("cv", "cv-algorithm2", "csd")
EPSILON = 0.2


def runs(request: Request) -> list[RunSpec]:
    """Every cost with k = 2, 3, 4 views, seed by seed."""
    paper = request.scale == "paper"
    specs = []
    for seed in range(request.seeds):
        for k in (2, 3, 4):
            for cost in filter(request.wants, COSTS):
                options, labels = {"epsilon": EPSILON, "cost": cost}, {"arm": cost}
                if paper:
                    specs.append(image_runs.paper_run("cost", k, "m3g", options, seed, labels=labels))
                else:
                    small = {"data_options": {"batch_size": 16}}
                    specs.append(
                        image_runs.image_run("cost", k, "m3g", options, seed, request, labels=labels, change=small)
                    )
    return specs


EXPERIMENT = Experiment(
    name="cost",
    runs=runs,
    work=image_runs.work,
    collect=image_tables.collect_cost,
    prepare=image_runs.prepare,
    methods=COSTS,
    seconds=25.0,
    seeds={"laptop": 3, "paper": 5},
)
