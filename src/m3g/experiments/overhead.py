"""Fraction of a training step spent in the loss, and memory saved by teacher views.

`m3g reproduce overhead` (the paper's Figure 5): 3 runs, 2 minutes; no data required. Expected: the loss takes 0.001 %
of a step with k = 2 and 0.007 % with k = 4. `m3g bench overhead` and `m3g bench memory` use the same functions. The
encoder is ViT-B/16. A full step takes minutes on a CPU, so the network is timed on a few images, and this time is
scaled linearly to all images of the step. The loss is measured at full size.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import torch
from torch import nn

from m3g.experiments.engine.spec import Experiment, Request, Result, RunSpec, Settings
from m3g.experiments.output import figures
from m3g.experiments.output.tables import hours, markdown, write_table
from m3g.losses.m3g import M3GLoss
from m3g.nets import MultiViewNet, Teacher, build_net

VIT_B16 = {"kind": "transformers", "model": "vit", "config": {"patch_size": 16}}


def vit(*, views: int, predictor: bool = True) -> MultiViewNet:
    """Return ViT-B/16 with the paper's heads and random weights, shared by all views, for images of 224 pixels."""
    return build_net(
        [(3, 224, 224)] * views,
        encoder=VIT_B16,
        shared=True,
        projector={"hidden": 4096, "out_features": 256},
        predictor={"hidden": 4096} if predictor else None,
    )


def seconds(function: Callable[[], object], *, repeats: int) -> float:
    """Return the median time of a call, after a warm-up call."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def loss_seconds(
    k: int, *, n: int, d: int, repeats: int, epsilon: float | None = None, temperature: float | None = None
) -> float:
    """Return the seconds of a forward and backward pass of M3G in its student–teacher form, on partly aligned views."""
    torch.manual_seed(0)
    objects = torch.randn(1, n, d)
    student = (objects + torch.randn(k, n, d)).requires_grad_()
    teacher = objects + torch.randn(k, n, d)
    loss = M3GLoss(epsilon, temperature=temperature)
    return seconds(lambda: loss(student, teacher=teacher).backward(), repeats=repeats)


def network_seconds(*, images: int, repeats: int) -> tuple[float, float]:
    """Return seconds per image: forward and backward pass of the student, and forward pass of the teacher."""
    torch.manual_seed(0)
    student = vit(views=2)
    teacher = Teacher(student)
    views = [torch.randn(images, 3, 224, 224)] * 2
    student_time = seconds(lambda: student(views).square().mean().backward(), repeats=repeats)
    teacher_time = seconds(lambda: teacher(views), repeats=repeats)
    return student_time / (2 * images), teacher_time / (2 * images)


def overhead(
    *,
    n: int,
    d: int,
    ks: list[int],
    images: int,
    repeats: int,
    epsilon: float | None = None,
    temperature: float | None = None,
) -> list[dict[str, float]]:
    """Return one row per k: seconds of the loss, seconds of the network, and the fraction of the loss in their sum."""
    per_student, per_teacher = network_seconds(images=images, repeats=repeats)
    rows = []
    for k in ks:
        loss = loss_seconds(k, n=n, d=d, epsilon=epsilon, temperature=temperature, repeats=repeats)
        network = k * n * (per_student + per_teacher)
        rows.append({"k": k, "loss": loss, "network": network, "share": loss / (loss + network)})
    return rows


def saved_bytes(function: Callable[[], object], parameters: Iterable[nn.Parameter]) -> int:
    """Return the bytes that a forward pass stores for the backward pass, without parameters, each storage once."""
    known = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    sizes: dict[int, int] = {}  # bytes by address

    def record(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        result = function()
    del result
    return sum(sizes.values())


def memory(*, k: int, n: int) -> list[dict[str, float]]:
    """Return one row per number s of student views: bytes stored for the backward pass, including those of M3G."""
    torch.manual_seed(0)
    student = vit(views=k)
    teacher = Teacher(student)
    loss = M3GLoss()
    views = [torch.randn(n, 3, 224, 224) for _ in range(k)]

    def step(students: int) -> torch.Tensor:
        parts = [(student if l < students else teacher).embed_view(view, l) for l, view in enumerate(views)]
        return loss(torch.stack(parts))

    known = list(student.parameters())
    return [{"students": s, "bytes": float(saved_bytes(partial(step, s), known))} for s in range(1, k + 1)]


def runs(request: Request) -> list[RunSpec]:
    """Return one run per number of views."""
    n, images = (4, 1) if request.miniature else (64, 2)
    return [
        RunSpec("overhead", {"k": k, "n": n, "d": 256, "epsilon": 0.2, "images": images}, {"k": k, "stage": "test"})
        for k in (2, 3, 4)
    ]


def work(settings: Settings, folder: Path, data: Path) -> dict[str, float]:
    """Measure the fraction of a step spent in the loss, on this machine."""
    options = {name: settings[name] for name in ("n", "d", "epsilon", "images")}
    (row,) = overhead(ks=[settings["k"]], repeats=3, **options)
    return row


def collect(results: list[Result], folder: Path) -> str:
    """Write Figure 5 and its numbers, which the paper does not give; return the text of the table."""
    rows = [["k", "loss, s", "rest of the step, s", "fraction of the step"]]
    for row in sorted(results, key=lambda row: row["labels"]["k"]):
        k, metrics = row["labels"]["k"], row["metrics"]
        fraction = f"{100 * metrics['share']:.4f} %"
        rows.append([str(k), f"{metrics['loss']:.3f}", f"{metrics['network']:.1f}", fraction])
    shares = {"this machine": {row["labels"]["k"]: (100 * row["metrics"]["share"], 0.0) for row in results}}
    figures.curves(shares, folder / "overhead", xlabel="views k", ylabel="fraction of a step spent in the loss, %")
    picture = "![Fraction of a training step spent in the loss against the number of views](overhead.png)"
    return write_table([hours(results), markdown(rows), picture], folder)


EXPERIMENT = Experiment(name="overhead", runs=runs, work=work, collect=collect, seconds=60.0)
