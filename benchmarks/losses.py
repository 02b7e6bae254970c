"""Time and memory of a forward and backward pass of every loss; time of the divergences relative to the gap.

    python -m benchmarks losses            writes results/losses.{json,md}

Each measurement runs in a separate process, so that its peak memory can be measured. A measurement that fails, does not
fit into memory or takes too long is recorded as such, and the others continue.
"""

from __future__ import annotations

import json
import multiprocessing
import platform
import time
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.measurement import peak_bytes
from m3g import losses

VIEWS = (3, 4, 6)
POINTS = (64, 256, 1024)
FEATURES = 128
MAX_SECONDS = 90.0
DIVERGENCE_SHAPES = ((64, 3), (64, 4))
# All losses with their defaults; `kl` and `symile` also with an option that changes their complexity.
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in losses.available()),
    ("kl", {"of": "pairs"}),
    ("symile", {"negatives": "n_squared"}),
]


def label(name: str, options: dict[str, Any]) -> str:
    return name if not options else f"{name} ({', '.join(f'{k}={v}' for k, v in options.items())})"


def noisy_views(k: int, n: int) -> torch.Tensor:
    """Return k noisy views of n points, similar to those in the middle of training."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(1, n, FEATURES, generator=generator)
    return points + torch.randn(k, n, FEATURES, generator=generator)


def step(loss: losses.ViewLoss, views: torch.Tensor) -> float:
    """Return the seconds of one forward and backward pass."""
    views = views.clone().requires_grad_()
    start = time.perf_counter()
    loss(views).backward()
    return time.perf_counter() - start


def measure(name: str, options: dict[str, Any], k: int, n: int, budget: float) -> dict[str, float]:
    """Return the median seconds of a pass, and its peak memory beyond inputs and libraries."""
    loss, views = losses.build(name, **options), noisy_views(k, n)
    step(loss, views[:, :8])  # exclude one-time initialisation, such as that of threads
    before = peak_bytes()
    first = step(loss, views)
    peak = peak_bytes() - before
    repeats = max(1 if first > budget else 5, min(50, int(budget / first)))
    return {"seconds": median(step(loss, views) for _ in range(repeats)), "bytes": peak, "repeats": repeats}


def compare_divergences(n: int, k: int, budget: float) -> dict[str, float]:
    """Return the median seconds of the gap and the divergences, measured in turns at one tolerance."""
    views = noisy_views(k, n)
    compared = {
        "gap": losses.build("m3g"),
        "kl": losses.build("kl"),
        "kl (of=pairs)": losses.build("kl", of="pairs"),
    }
    for loss in compared.values():
        step(loss, views)
    times: dict[str, list[float]] = {name: [] for name in compared}
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times["gap"]) < 3:
        for name, loss in compared.items():
            times[name].append(step(loss, views))
    return {name: median(seconds) for name, seconds in times.items()}


def _child(connection: Connection, function: str, arguments: tuple[Any, ...]) -> None:
    try:
        connection.send(globals()[function](*arguments))
    except ValueError as error:
        connection.send({"failed": str(error)})
    except (RuntimeError, MemoryError) as error:
        connection.send({"failed": str(error).splitlines()[0]})


def in_a_process(function: str, *arguments: Any) -> dict[str, Any]:
    """Return the result of a function of this file, run in a new process for a limited time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["m3g.losses"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        if not receiver.poll(MAX_SECONDS):
            return {"failed": f"more than {MAX_SECONDS:g} s"}
        return receiver.recv()
    except EOFError:
        return {"failed": "out of memory"}
    finally:
        process.kill()
        process.join()


def table(rows: list[dict[str, Any]]) -> str:
    """Return a table of milliseconds / MiB with one row per loss."""
    shapes = sorted({(row["k"], row["n"]) for row in rows})
    cells = {(row["loss"], row["k"], row["n"]): row for row in rows}

    def cell(row: dict[str, Any]) -> str:
        return "–" if "failed" in row else f"{1e3 * row['seconds']:.1f} / {row['bytes'] / 2**20:.0f}"

    lines = [
        "| ms / MiB | " + " | ".join(f"k={k} n={n}" for k, n in shapes) + " |",
        "| --- |" + " ---: |" * len(shapes),
    ]
    for name in dict.fromkeys(row["loss"] for row in rows):
        lines.append(f"| {name} | " + " | ".join(cell(cells[name, k, n]) for k, n in shapes) + " |")
    return "\n".join(lines)


def run(
    results_dir: Path,
    *,
    views: tuple[int, ...] = VIEWS,
    points: tuple[int, ...] = POINTS,
    budget: float = 1.0,
) -> None:
    """Measure everything and write losses.json and losses.md into `results_dir`."""
    rows = [
        {"loss": label(name, options), "k": k, "n": n, "d": FEATURES}
        | in_a_process("measure", name, options, k, n, budget)
        for name, options in VARIANTS
        for k in views
        for n in points
    ]
    print(table(rows), flush=True)
    comparisons = []
    for n, k in DIVERGENCE_SHAPES:
        seconds = in_a_process("compare_divergences", n, k, 5 * budget)
        ratios = {f"{name} / gap": value / seconds["gap"] for name, value in seconds.items() if name != "gap"}
        comparisons.append({"n": n, "k": k, "seconds": seconds, **ratios})
        print(comparisons[-1], flush=True)
    machine = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": platform.processor() or platform.machine(),
    }
    report = {"machine": machine, "losses": rows, "divergence against gap": comparisons}
    results_dir.mkdir(parents=True, exist_ok=True)
    (results_dir / "losses.json").write_text(json.dumps(report, indent=1) + "\n")
    summary = "\n".join(
        f"- n = {row['n']}, k = {row['k']}: "
        + ", ".join(f"{key} {value:.2f}" for key, value in row.items() if "/" in key)
        for row in comparisons
    )
    (results_dir / "losses.md").write_text(
        f"Written by `python -m benchmarks losses`. One forward and backward pass, float32, d = {FEATURES}, "
        f"{machine['threads']} threads, torch {machine['torch']}. If n^k exceeds the budget of the exact solver, "
        'm3g and kl are estimated by sampling (`solver="auto"`). A dash means unsupported, out of memory or more than '
        f"{MAX_SECONDS:g} s (the reason is in losses.json).\n\n{table(rows)}\n\n"
        f"Time of a divergence divided by that of the gap:\n\n{summary}\n"
    )
