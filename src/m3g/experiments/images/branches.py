"""Accuracy and memory against the number of student views (a trade-off that the paper's section 4.1 leaves open).

`m3g reproduce branches --data SETS`: 24 runs per data set, 5 minutes on a shared core. Expected on Tiny-ImageNet: M3G
39.1 to 41.1 %, InfoNCE 39.3 to 40.2 %; 3 MiB with one student view, 12 MiB with leave one out.

With s student views, the activations of s of the k = 4 views are stored for the backward pass. With `leave one out`,
the form of the paper, each view in turn comes from the teacher. The losses are M3G and pairwise InfoNCE.
"""

from __future__ import annotations

from pathlib import Path

import torch

from m3g.experiments.engine.spec import Experiment, Request, RunSpec, Settings
from m3g.experiments.images import runs as image_runs
from m3g.experiments.images import tables as image_tables
from m3g.experiments.overhead import saved_bytes
from m3g.experiments.runner import full
from m3g.training import build_data, build_module

METHODS = ("m3g", "infonce-pwe")
TEMPERATURE = 0.12
STUDENTS = (None, 1, 2, 3)
K = 4


def runs(request: Request) -> list[RunSpec]:
    """Return a run for every number of student views and loss, seed by seed."""
    return [
        image_runs.image_run(
            "branches", data, K, method, {"temperature": TEMPERATURE}, seed, request,
            labels={"arm": method, "students": students or "leave one out"},
            change={"teacher": {"enabled": True, "student_views": students}},
        )
        for data in image_runs.sets(request.scale)
        for seed in range(request.seeds)
        for students in STUDENTS
        for method in filter(request.wants, METHODS)
    ]  # fmt: skip


def work(settings: Settings, folder: Path, data: Path) -> dict[str, float]:
    return {**image_runs.work(settings, folder, data), "saved_bytes": step_bytes(settings)}


def step_bytes(settings: Settings) -> int:
    """Return the bytes that one training step stores for its backward pass, including the loss, without parameters."""
    config = full.config_of(settings)
    views = build_data(config)
    module = build_module(config, views)
    batch = [torch.randn(views.batch_size, *shape) for shape in views.view_shapes]
    students = config.teacher.student_views

    def step() -> torch.Tensor:
        # Training draws the student's views at random. The first ones are used here; the memory is the same.
        number = len(batch) if students is None else students
        student = [module.net.embed_view(view, l) for l, view in enumerate(batch[:number])]
        assert module.teacher is not None
        teacher = [module.teacher.embed_view(view, l) for l, view in enumerate(batch)]
        if students is None:
            return module.loss(torch.stack(student), teacher=torch.stack(teacher))
        return module.loss(torch.stack(student + teacher[number:]))

    return saved_bytes(step, module.net.parameters())


EXPERIMENT = Experiment(
    name="branches",
    runs=runs,
    work=work,
    collect=image_tables.collect_branches,
    sets=image_runs.sets,
    methods=METHODS,
    seconds=25.0,
    seeds={"laptop": 3, "paper": 3},
)
