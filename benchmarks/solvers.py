"""The exact solvers: the loss beside OTT-JAX's MMSinkhorn, POT, and the machine's own matrix products.

    python -m benchmarks solvers          writes results/solvers.{json,md,png}

Every program solves the same noisy views (a shared base plus unit noise, on the sphere, d = 64) in float32 to the same
tolerance, with the same threads. Each measurement is a process of its own, so that its peak memory is its own;
programs take turns, so that a change of the machine's mood meets all of them.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

SIZES = [(64, 2), (64, 3), (128, 3), (32, 4), (16, 5), (256, 3), (64, 4), (16, 6)]
EPSILONS = (0.2, 0.05, 0.02)
LARGE = [(512, 3), (128, 4), (48, 5), (24, 6)]
SHARP = [(256, 3), (64, 4)]
# Times faster than OTT-JAX that we want to be, at every epsilon above.
TARGETS = {(256, 3): 150, (64, 4): 150, (16, 6): 100, (64, 3): 15, (128, 3): 15, (32, 4): 15, (16, 5): 15, (64, 2): 0.5}


def measure(program: str, n: int, k: int, epsilon: float, **options: Any) -> dict[str, Any]:
    """Run one measurement in a process of its own; see `measurement.py`."""
    job = {"program": program, "n": n, "k": k, "epsilon": epsilon, **options}
    out = subprocess.run(
        [sys.executable, "-m", "benchmarks.measurement", json.dumps(job)], capture_output=True, text=True
    )
    if out.returncode != 0:
        reason = out.stderr.strip().splitlines()[-1] if out.stderr.strip() else f"exit code {out.returncode}"
        return {**job, "failed": reason}
    row = {**job, **json.loads(out.stdout.strip().splitlines()[-1])}
    print(
        f"  {program:8s} n={n:<4d} k={k} eps={epsilon:<6g} {row['seconds'] * 1e3:10.3f} ms  {row['steps']:>4d} steps  "
        f"{row['peak_bytes'] / 2**20:7.0f} MiB",
        flush=True,
    )
    return row


def run(results: Path) -> None:
    rows = []
    for n, k in SIZES:
        for epsilon in EPSILONS:
            programs = ["m3g", "ott-jax"] + (["pot"] if k == 2 else [])
            rows += [measure(program, n, k, epsilon, tol=1e-3) for program in programs]
    for n, k in SHARP:
        for tol, dtype in ((1e-5, "float32"), (1e-8, "float64")):
            rows.append(measure("m3g", n, k, 0.005, tol=tol, dtype=dtype))
    for n, k in LARGE:
        rows += [measure("m3g", n, k, epsilon, tol=1e-3) for epsilon in EPSILONS]
    report = {
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "rows": rows,
    }
    (results / "solvers.json").write_text(json.dumps(report, indent=1) + "\n")
    table = as_markdown(rows)
    (results / "solvers.md").write_text(table)
    print(table)
    plot(rows, results / "solvers.png")


def find(rows: list[dict[str, Any]], program: str, n: int, k: int, epsilon: float, tol: float) -> dict[str, Any] | None:
    for row in rows:
        if (row["program"], row["n"], row["k"], row["epsilon"], row["tol"]) == (program, n, k, epsilon, tol):
            return row if "failed" not in row else None
    return None


def as_markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        "Written by `python -m benchmarks solvers`. Milliseconds are the median of a forward pass; `backward` is",
        "(forward + backward) / forward; memory is the peak beyond the process before the solve; `of peak` is the rate",
        "of the contractions' matrix products over that of a plain 2048 x 2048 product in the same process.",
        "",
        "| n | k | eps | m3g ms | steps | backward | MiB | of peak "
        "| OTT-JAX ms | sweeps | MiB | times faster | wanted | POT ms |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["program"] != "m3g" or "failed" in row:
            continue
        key = (row["n"], row["k"], row["epsilon"], row["tol"])
        peer, pot = find(rows, "ott-jax", *key), find(rows, "pot", *key)
        faster = f"{peer['seconds'] / row['seconds']:.1f}" if peer else "-"
        wanted = f"{TARGETS[key[:2]]:g}" if peer else "-"
        label = f"{row['epsilon']:g}" + ("" if row["tol"] == 1e-3 else f" (tol {row['tol']:g}, {row['dtype']})")
        peer_cells = (
            f"{peer['seconds'] * 1e3:.2f} | {peer['steps']} | {peer['peak_bytes'] / 2**20:.0f}" if peer else "- | - | -"
        )
        lines.append(
            f"| {row['n']} | {row['k']} | {label} | {row['seconds'] * 1e3:.2f} | {row['steps']} | "
            f"{row['backward_ratio']:.2f} | {row['peak_bytes'] / 2**20:.0f} | {row['of_peak']:.0%} | {peer_cells} | "
            f"{faster} | {wanted} | " + (f"{pot['seconds'] * 1e3:.2f} |" if pot else "- |")
        )
    disagreements = [
        abs(find(rows, "m3g", r["n"], r["k"], r["epsilon"], r["tol"])["value"] - r["value"])  # type: ignore[index]
        for r in rows
        if r["program"] != "m3g" and "failed" not in r and find(rows, "m3g", r["n"], r["k"], r["epsilon"], r["tol"])
    ]
    if disagreements:
        lines += ["", f"Largest difference of the entropic cost from that of a peer: {max(disagreements):.1e}."]
    lines += [f"Failed: {row}" for row in rows if "failed" in row]
    return "\n".join(lines) + "\n"


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Time against the number of tuples n^k, one line per program, one panel per epsilon."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(EPSILONS), sharey=True)
    for axis, epsilon in zip(axes, EPSILONS):
        for program, marker in (("m3g", "o"), ("ott-jax", "s"), ("pot", "^")):
            points = sorted(
                (row["n"] ** row["k"], row["seconds"], f"{row['n']},{row['k']}")
                for row in rows
                if row["program"] == program and row["epsilon"] == epsilon and "failed" not in row
            )
            if points:
                axis.plot([p[0] for p in points], [p[1] for p in points], marker=marker, label=program)
            if program == "m3g":
                for x, y, name in points:
                    axis.annotate(name, (x, y), textcoords="offset points", xytext=(0, -11), fontsize=6, ha="center")
        axis.set(xscale="log", yscale="log", xlabel="tuples $n^k$ (labels: n,k)", title=f"epsilon = {epsilon:g}")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds, forward")
    axes[0].legend()
    figure.savefig(path, dpi=130)
