"""The loss on several processes: time per step, memory, bytes exchanged, and an estimate for GPUs.

    python -m benchmarks processes               writes results/processes.{json,md}

Every process has a part of the points and one thread. "every process solves" gathers the points and solves the whole
problem on each process; "shared" divides the solve; "default" divides solves of at least 1e10 operations per step. The
processes synchronise before each timed call. Times are those of the slowest process; processor time excludes waiting.
Bytes are those of the tensors that one process passes to collective operations.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

CASES = [(512, 3), (128, 4), (48, 5), (1536, 3), (224, 4)]
WORLDS = (1, 2, 4)
MODES = {"every process solves": False, "shared": True, "default": None}
EPSILON, FEATURES, REPEATS = 0.05, 64, 5
PARTS = ("measured", "plan")

# Assumptions of the estimate for NVIDIA A100: matrix products in float32 at 60 % and bfloat16 at 45 % of the peak;
# NVLink inside a node of 8 and InfiniBand between nodes, per GPU and direction; latency of a collective operation.
FLOAT32, BFLOAT16 = 0.6 * 19.5e12, 0.45 * 312e12
NVLINK, INFINIBAND, LATENCY = 230e9, 22e9, 30e-6
# Steps of a solve at epsilon 0.05, and iterations of conjugate gradients in each.
STEPS, ITERATIONS = 4, 12
# ViT-B/16 at 224 pixels: operations of a forward pass, and of both passes.
VIT_FORWARD = 2 * 17.6e9
VIT_FLOPS = 3 * VIT_FORWARD
# Time of a kernel launch; every eager operator counts as one launch.
LAUNCH = 5e-6


def exchanged(n: int, k: int, d: int = FEATURES, *, newton: int, sweeps: int = 0, world: int = 2) -> float:
    """Return the bytes that a process contributes to a shared float32 solve, without synchronisations (48 bytes each).

    Numbers that a process contributes:

    - the gather: k n d / `world`;
    - a Newton step: k n and, up to 2048 points, all pair marginals, k (k-1)/2 n². With more points, k n for every
      iteration of conjugate gradients instead, and once the gradient, k n d;
    - a sweep: n, and n^⌈(k-1)/2⌉ for a joint marginal. A sweep divides the other k - 1 views into two groups, and this
      is the joint marginal of the larger one. Without Newton steps, once the gradient, k n d.
    """
    pairs, points = k * (k - 1) / 2 * n**2, k * n
    numbers = points * d / world
    if points <= 2048:
        numbers += newton * (points + pairs)
    else:
        numbers += newton * (1 + ITERATIONS) * points + points * d
    if sweeps:
        group = n ** math.ceil((k - 1) / 2)
        gradient = 0 if newton else points * d
        numbers += n + sweeps * (group + n) + group * (2 if k > 3 else 1) + 2 * n / world + gradient
    return 4 * numbers


def work(world: int, rank: int, rendezvous: str) -> None:
    """Measure all cases in one of the processes; rank 0 prints a JSON line for each."""
    import torch
    import torch.distributed as dist

    import m3g
    from benchmarks.measurement import noisy_views

    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    for n, k in CASES:
        views = noisy_views(k, n, d=FEATURES).chunk(world, 1)[rank].clone().requires_grad_()
        for mode, shard in MODES.items() if world > 1 else [("one process", False)]:
            loss = m3g.M3GLoss(EPSILON, gather=True, shard=shard)
            row = {"n": n, "k": k, "processes": world, "mode": mode, **measured(loss, views, world)}
            row["steps"], row["gap"] = loss.last.num_steps, loss(views).item()
            if rank == 0:
                print(json.dumps(row), flush=True)
    if world > 1:
        dist.destroy_process_group()


def measured(loss: Any, views: Any, world: int) -> dict[str, float]:
    """Return the median seconds, the peak memory and the exchanged bytes of a step.

    `views` are the points of this process. Seconds and memory are the maximum over the processes.
    """
    import torch
    import torch.distributed as dist

    def step() -> None:
        loss(views).backward()

    counted: list[int] = []
    originals = {name: getattr(dist, name) for name in COLLECTIVES if hasattr(dist, name)}
    for name, original in originals.items():

        def count(*tensors: Any, original: Any = original, position: int = COLLECTIVES[name], **options: Any) -> Any:
            counted.append(tensors[position].nbytes)
            return original(*tensors, **options)

        setattr(dist, name, count)
    step()
    row = {"exchanged_bytes": sum(counted), "collectives": len(counted)}
    for name, original in originals.items():
        setattr(dist, name, original)
    row["peak_bytes"] = peak_bytes(step)
    times, processor_times = [], []
    for _ in range(REPEATS):
        if world > 1:
            dist.barrier()
        start, start_processor = time.perf_counter(), time.process_time()
        step()
        times.append(time.perf_counter() - start)
        processor_times.append(time.process_time() - start_processor)
    row["seconds"], row["processor_seconds"] = statistics.median(times), statistics.median(processor_times)
    if world > 1:
        largest = ("seconds", "processor_seconds", "peak_bytes")
        worst = torch.tensor([row[name] for name in largest], dtype=torch.float64)
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        row.update(zip(largest, worst.tolist()))
    return row


# Collective operations, and the position of the argument that a process contributes.
COLLECTIVES = {"all_reduce": 0, "broadcast": 0, "all_gather_single": 1, "all_gather_into_tensor": 1}


def peak_bytes(step: Callable[[], None]) -> int:
    """Return the peak bytes of tensors during a call, beyond those allocated before it."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    assert recorded.profiler is not None
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(accumulate((event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())), initial=0))


def launch(world: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.processes", str(world)]
        processes = [
            subprocess.Popen(
                [*command, str(rank), f"{folder}/rendezvous"],
                stdout=subprocess.PIPE if rank == 0 else None,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            for rank in range(world)
        ]
        out, _ = processes[0].communicate()
        if [process.wait() for process in processes] != [0] * world:
            raise RuntimeError(f"one of {world} processes failed.")
    rows = [json.loads(line) for line in out.splitlines()]
    for row in rows:
        print(
            f"  R={world} n={row['n']:<5d} k={row['k']} {row['mode']:22s} {row['seconds'] * 1e3:8.1f} ms, "
            f"{row['processor_seconds'] * 1e3:.1f} ms of processor",
            flush=True,
        )
    return rows


def plan() -> list[dict[str, Any]]:
    """Estimate a step of 2048 objects on 1, 8 and 32 GPUs from operations, bytes and the assumptions above."""
    rows = []
    for n, k in ((2048, 3), (2048, 4)):
        for world in (1, 8, 32):
            flops = STEPS * 6 * n**k / world
            num_bytes = exchanged(n, k, 256, newton=STEPS, world=world)
            ring = 2 * (world - 1) / world * num_bytes / (NVLINK if world <= 8 else INFINIBAND)
            latency = 0.0 if world == 1 else STEPS * (4 + 3 * ITERATIONS) * LATENCY
            loss = flops / FLOAT32 + (ring if world > 1 else 0.0) + latency
            network = VIT_FLOPS * k * n / world / BFLOAT16
            rows.append(
                {
                    "n": n,
                    "k": k,
                    "gpus": world,
                    "flops": flops,
                    "exchanged_bytes": num_bytes if world > 1 else 0.0,
                    "loss_seconds": loss,
                    "network_seconds": network,
                    "fraction": loss / (loss + network),
                }
            )
    return rows


def student_and_teacher() -> list[dict[str, Any]]:
    """Estimate a step of the paper's setting on one GPU: 64 images, student and teacher, d = 256.

    Operators, operations of matrix products and bytes of the loss are counted on this machine, forward and backward.
    """
    import m3g
    from benchmarks.measurement import live_bytes, matmul_operations, noisy_views, operators

    loss, rows = m3g.M3GLoss(epsilon=EPSILON), []
    for k in (2, 3, 4):
        views = noisy_views(k, 64, d=256).requires_grad_()

        def step(views: Any = views) -> None:
            loss(views, teacher=views.detach()).backward()

        row = {"k": k, "flops": matmul_operations(step), "bytes": live_bytes(step), "operators": operators(step)}
        seconds = row["flops"] / FLOAT32 + row["operators"] * LAUNCH
        network = (VIT_FLOPS + VIT_FORWARD) * k * 64 / BFLOAT16
        fraction = seconds / (seconds + network)
        rows.append({**row, "loss_seconds": seconds, "network_seconds": network, "fraction": fraction})
    return rows


def run(results: Path, only: str | None = None) -> None:
    path = results / "processes.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    report = {"measured": stored.get("measured", []), "plan": plan(), "student_and_teacher": student_and_teacher()}
    if only in (None, "measured"):
        report["measured"] = [row for world in WORLDS for row in launch(world)]
        report["machine"] = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    else:
        report["machine"] = stored.get("machine", {})
    path.write_text(json.dumps(report, indent=1) + "\n")
    (results / "processes.md").write_text(as_markdown(report))


def as_markdown(report: dict[str, Any]) -> str:
    machine = report["machine"]
    lines = [
        f"Written by `python -m benchmarks processes` on {machine.get('cores')} cores ({machine.get('processor')}), "
        f"one thread per process, gloo, float32, epsilon {EPSILON}, d = {FEATURES}. Forward and backward, median of "
        f"{REPEATS}; peak memory of tensors beyond those allocated before the step.",
        "",
        "| n | k | processes | solve | ms per step | speed-up | processor ms | steps | memory, MiB "
        "| exchanged, KiB | formula, KiB | exchanges |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    alone = {(row["n"], row["k"]): row["seconds"] for row in report["measured"] if row["processes"] == 1}
    for row in report["measured"]:
        n, k, world = row["n"], row["k"], row["processes"]
        swept = n ** (k - 1) * 4 <= 2**23
        formula = exchanged(n, k, newton=0 if swept else row["steps"], sweeps=row["steps"] if swept else 0, world=world)
        cells = [n, k, world, row["mode"], f"{row['seconds'] * 1e3:.1f}", f"{alone[n, k] / row['seconds']:.2f}"]
        cells += [
            f"{row['processor_seconds'] * 1e3:.1f}",
            row["steps"],
            f"{row['peak_bytes'] / 2**20:.0f}",
            f"{row['exchanged_bytes'] / 1024:.0f}",
        ]
        cells += [f"{formula / 1024:.0f}" if row["mode"] == "shared" else "", row["collectives"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += [
        "",
        f"A step of 2048 objects on A100 GPUs, estimated: {STEPS} steps of a solve, products in float32 at "
        f"{FLOAT32 / 1e12:.0f} TFLOP/s, {NVLINK / 1e9:.0f} GB/s inside a node of 8 and {INFINIBAND / 1e9:.0f} GB/s "
        f"between nodes, {LATENCY * 1e6:.0f} µs per exchange; ViT-B/16 in bfloat16 at {BFLOAT16 / 1e12:.0f} TFLOP/s. "
        "The paper plots the overhead of its loss without numbers.",
        "",
        "| n | k | GPUs | operations of the loss per GPU | exchanged, MiB | loss, ms | ViT-B/16, ms | loss / step |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in report["plan"]:
        cells = [row["n"], row["k"], row["gpus"], f"{row['flops']:.1e}", f"{row['exchanged_bytes'] / 2**20:.0f}"]
        cells += [f"{row['loss_seconds'] * 1e3:.1f}", f"{row['network_seconds'] * 1e3:.0f}", f"{row['fraction']:.1%}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += [
        "",
        "A step of the paper's setting on one A100 (64 images, student and teacher, d = 256), estimated in the same "
        f"way with {LAUNCH * 1e6:.0f} µs per eager operator. Operators, products and memory of the loss are counted on "
        "a CPU, forward and backward.",
        "",
        "| k | operations of the loss | memory, MiB | eager operators | loss, ms | ViT-B/16, ms | loss / step |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in report["student_and_teacher"]:
        cells = [row["k"], f"{row['flops']:.1e}", f"{row['bytes'] / 2**20:.0f}", row["operators"]]
        cells += [f"{row['loss_seconds'] * 1e3:.1f}", f"{row['network_seconds'] * 1e3:.0f}", f"{row['fraction']:.1%}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes", description=work.__doc__)
    parser.add_argument("world", type=int, help="number of processes")
    parser.add_argument("rank", type=int, help="number of this process")
    parser.add_argument("rendezvous", help="file through which the processes connect")
    work(**vars(parser.parse_args()))
