"""Circular variance against circular standard deviation (the paper's Table 4).

`m3g reproduce cost --data SETS`: 27 runs per data set, 4 minutes on one core. Expected on Tiny-ImageNet with k = 4: cv
38.5 %, cv-algorithm2 40.0 %, csd 38.8 %.

The circular variance has two scales: that of the paper's definition (cv), and that of its Algorithm 2. The circular
standard deviation (csd) is not a sum over pairs of views, so the solver stores the costs of all n^k tuples. Laptop runs
therefore use batches of n = 16.
"""

from __future__ import annotations

from m3g.experiments.engine.spec import Experiment, Request, RunSpec
from m3g.experiments.images import runs as image_runs
from m3g.experiments.images import tables as image_tables

COSTS = ("cv", "cv-algorithm2", "csd")
EPSILON = 0.2


def runs(request: Request) -> list[RunSpec]:
    """Return a run for every cost with k = 2, 3, 4 views, seed by seed."""
    return [
        image_runs.image_run(
            "cost", data, k, "m3g", {"epsilon": EPSILON, "cost": cost}, seed, request,
            labels={"arm": cost}, laptop={"data_options": {"batch_size": 16}},
        )
        for data in image_runs.sets(request.scale)
        for seed in range(request.seeds)
        for k in (2, 3, 4)
        for cost in filter(request.wants, COSTS)
    ]  # fmt: skip


EXPERIMENT = Experiment(
    name="cost",
    runs=runs,
    work=image_runs.work,
    collect=image_tables.collect_cost,
    sets=image_runs.sets,
    methods=COSTS,
    seconds=25.0,
    seeds={"laptop": 3, "paper": 5},
)
