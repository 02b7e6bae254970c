"""Accuracy against epsilon (the paper's Figure 4); `m3g reproduce epsilon`. The runs are M3G's of `imagenet`."""

from __future__ import annotations

from m3g.experiments.engine.spec import Experiment, Request, RunSpec
from m3g.experiments.images import runs as image_runs
from m3g.experiments.images import tables as image_tables

VALUES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def runs(request: Request) -> list[RunSpec]:
    """Every epsilon with k = 2, 3, 4 views, seed by seed."""
    paper = request.scale == "paper"
    specs = []
    for seed in range(request.seeds):
        for k in (2, 3, 4):
            for value in VALUES:
                options, labels = {"epsilon": value}, {"arm": "m3g", "epsilon": value}
                if paper:
                    specs.append(image_runs.paper_run("epsilon", k, "m3g", options, seed, labels=labels))
                else:
                    specs.append(image_runs.image_run("epsilon", k, "m3g", options, seed, request, labels=labels))
    return specs


EXPERIMENT = Experiment(
    name="epsilon",
    runs=runs,
    work=image_runs.work,
    collect=image_tables.collect_epsilon,
    prepare=image_runs.prepare,
    seconds=25.0,
    seeds={"laptop": 3, "paper": 5},
)
