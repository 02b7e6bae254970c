"""Accuracy against epsilon (the paper's Figure 4), with the configuration of M3G in `imagenet`.

`m3g reproduce epsilon --data SETS`: 54 runs per data set, 8 minutes on one core. Expected on Tiny-ImageNet with k = 4:
41.1 % at 0.02, 41.3 % at 0.05, 37.7 % at the paper's 0.2.
"""

from __future__ import annotations

from m3g.experiments.engine.spec import Experiment, Request, RunSpec
from m3g.experiments.images import runs as image_runs
from m3g.experiments.images import tables as image_tables

VALUES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def runs(request: Request) -> list[RunSpec]:
    """Return a run for every epsilon with k = 2, 3, 4 views, seed by seed."""
    return [
        image_runs.image_run(
            "epsilon", data, k, "m3g", {"epsilon": value}, seed, request, labels={"arm": "m3g", "epsilon": value}
        )
        for data in image_runs.sets(request.scale)
        for seed in range(request.seeds)
        for k in (2, 3, 4)
        for value in VALUES
    ]


EXPERIMENT = Experiment(
    name="epsilon",
    runs=runs,
    work=image_runs.work,
    collect=image_tables.collect_epsilon,
    sets=image_runs.sets,
    seconds=25.0,
    seeds={"laptop": 3, "paper": 5},
)
