"""The exact solvers compared with OTT-JAX's MMSinkhorn, POT, and plain matrix products.

    python -m benchmarks solvers                 writes results/solvers.{json,md,png} and the README's table
    python -m benchmarks solvers --only small    repeats one of PARTS and keeps the stored rows of the others
    python -m benchmarks solvers --only tables   writes the tables from the stored rows, without measurements

For every problem, all programs solve the same noisy views (a shared base plus unit noise, on the sphere, d = 64) to the
same tolerance, in float32 with the same threads; some problems are solved only by m3g, also in float64. Each
measurement runs in a separate process, so that its peak memory can be measured. The programs of a problem are measured
one after the other, so that slow changes of the load affect all of them.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks import readme_table

EPSILONS = (0.2, 0.05, 0.02)
SMALL = [(n, k, epsilon) for n, k in [(64, 2), (64, 3), (96, 3), (128, 3), (32, 4), (16, 5)] for epsilon in EPSILONS]
MEDIUM = [(n, k, epsilon) for n, k in [(256, 3), (64, 4), (16, 6)] for epsilon in EPSILONS]
LARGE = [(n, k, epsilon) for n, k in [(512, 3), (128, 4), (48, 5), (24, 6)] for epsilon in EPSILONS]
SHARP = [(256, 3), (64, 4)]
# Problems added to the original benchmark, with other sizes and epsilons. `FEW_COLUMNS` of the factored solver was
# chosen from the times of some of them.
OUTSIDE_SIZES = [
    *[(48, 3), (80, 3), (96, 3), (160, 3), (200, 3)],
    *[(24, 4), (48, 4), (80, 4), (12, 5), (24, 5), (10, 6), (12, 6), (8, 7)],
]
OUTSIDE = [(n, k, epsilon) for n, k in OUTSIDE_SIZES for epsilon in (0.3, 0.1, 0.03)]
PARTS = ("small", "medium", "outside", "large", "launches", "tables")
# Bounds between the classes of problems by number of tuples.
CLASSES = (10**6, 10**7)
# Target: geometric mean of the speed-up over OTT-JAX in part "outside".
OUTSIDE_TARGET = 300
# Target speed-up over OTT-JAX, at every epsilon above.
TARGETS = {
    **{(256, 3): 150, (64, 4): 150, (16, 6): 100},
    **{(64, 3): 10, (96, 3): 10, (128, 3): 10, (32, 4): 10, (16, 5): 10, (64, 2): 1 / 1.3},
}
# Target: maximum number of operators of one eager solve.
MAX_OPERATORS = {(64, 2, 0.05): 60, (64, 3, 0.05): 130, (32, 4, 0.05): 150, (96, 3, 0.03): 250}


def measure(program: str, n: int, k: int, epsilon: float, **options: Any) -> dict[str, Any]:
    """Run one measurement in a separate process; see `measurement.py`."""
    job = {"program": program, "n": n, "k": k, "epsilon": epsilon, **options}
    out = subprocess.run(
        [sys.executable, "-m", "benchmarks.measurement", json.dumps(job)], capture_output=True, text=True
    )
    if out.returncode != 0:
        reason = out.stderr.strip().splitlines()[-1] if out.stderr.strip() else f"exit code {out.returncode}"
        return {**job, "failed": reason}
    row = {**job, **json.loads(out.stdout.strip().splitlines()[-1])}
    shown = f"{row['seconds'] * 1e3:10.3f} ms  {row['steps']:>4d} steps" if "seconds" in row else "counted"
    print(f"  {program:8s} n={n:<4d} k={k} eps={epsilon:<6g} {shown}", flush=True)
    return row


def run(results: Path, only: str | None = None) -> None:
    """Measure all parts, or only one and keep the stored rows of the others."""
    rows = []
    for part, cases in (("small", SMALL), ("medium", MEDIUM), ("outside", OUTSIDE)):
        for n, k, epsilon in cases if only in (None, part) else []:
            rows.append(measure("m3g", n, k, epsilon, tol=1e-3, compiled=part == "small" and epsilon == 0.05))
            rows += [measure(peer, n, k, epsilon, tol=1e-3) for peer in (["ott-jax", "pot"] if k == 2 else ["ott-jax"])]
    if only in (None, "medium"):
        for n, k in SHARP:
            for tol, dtype in ((1e-5, "float32"), (1e-8, "float64")):
                rows.append(measure("m3g", n, k, 0.005, tol=tol, dtype=dtype))
    if only in (None, "large"):
        rows += [measure("m3g", *case, tol=1e-3) for case in LARGE]
    if only in (None, "launches"):
        rows.append(measure("launches", 64, 4, 0.05, steps=3))
    path = results / "solvers.json"
    if only is not None and path.exists():
        stored = json.loads(path.read_text())["rows"]
        rows = list(({_key(row): row for row in stored} | {_key(row): row for row in rows}).values())
    if only != "tables":
        machine = {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        }
        path.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    table = as_markdown(rows)
    (results / "solvers.md").write_text(table)
    print(table)
    plot(rows, results / "solvers.png")
    if results == readme_table.SOLVERS.parent:
        readme_table.write(rows)


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields that identify a measurement."""
    return tuple(row.get(name) for name in ("program", "n", "k", "epsilon", "tol", "dtype"))


def find(rows: list[dict[str, Any]], program: str, n: int, k: int, epsilon: float, tol: float) -> dict[str, Any] | None:
    for row in rows:
        if (row["program"], row["n"], row["k"], row["epsilon"], row.get("tol")) == (program, n, k, epsilon, tol):
            return row if "failed" not in row else None
    return None


def as_markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        "Written by `python -m benchmarks solvers`. Milliseconds are the median of a forward pass of the loss.",
        "`operators` is the number of top-level PyTorch operators of an eager solve (by the profiler), with the",
        "target in brackets. `fixed` is the loss with the smallest number of fixed steps that reaches the tolerance,",
        "eager, and `compiled` is the same with `torch.compile(loss, fullgraph=True)`. `backward` is",
        "(forward + backward) / forward. Memory is the peak of the process beyond its size before the solve. `of peak`",
        "is the speed of the matrix products relative to a plain 2048 x 2048 product in the same process.",
        "The programs of a row are measured one after the other; parts may come from different runs.",
        "",
        "| n | k | eps | operators | m3g ms | steps | fixed ms | compiled ms | steps | backward | MiB | of peak "
        "| OTT-JAX ms | sweeps | MiB | times faster | compiled: times faster | target | POT ms |",
        "|---" * 19 + "|",
    ]
    lines += [_line(rows, row) for row in rows if row["program"] == "m3g" and "failed" not in row]
    disagreements = [
        abs(find(rows, "m3g", r["n"], r["k"], r["epsilon"], r["tol"])["value"] - r["value"])  # type: ignore[index]
        for r in rows
        if r["program"] in ("ott-jax", "pot")
        and "failed" not in r
        and find(rows, "m3g", r["n"], r["k"], r["epsilon"], r["tol"])
    ]
    if disagreements:
        lines += ["", f"Largest difference between the entropic costs of m3g and a peer: {max(disagreements):.1e}."]
    outside = [(find(rows, "m3g", *case, 1e-3), find(rows, "ott-jax", *case, 1e-3)) for case in OUTSIDE]
    ratios = [peer["seconds"] / row["seconds"] for row, peer in outside if row and peer]
    if ratios:
        lines.append(
            f"{geometric_mean(ratios):.0f} times faster than OTT-JAX over the {len(ratios)} problems that were added "
            f"to the original benchmark (geometric mean, k >= 3; target: {OUTSIDE_TARGET})."
        )
    lines += _by_size(rows)
    lines += [_launches(row) for row in rows if row["program"] == "launches" and "failed" not in row]
    lines += [f"Failed: {row}" for row in rows if "failed" in row]
    return "\n".join(lines) + "\n"


def _by_size(rows: list[dict[str, Any]]) -> list[str]:
    """Return a table of the speed-up over OTT-JAX by number of tuples, over all rows with k >= 3 and a tol of 1e-3."""
    cases = [(row["n"], row["k"], row["epsilon"]) for row in rows if row["program"] == "ott-jax" and row["k"] > 2]
    pairs = [(case, find(rows, "m3g", *case, 1e-3), find(rows, "ott-jax", *case, 1e-3)) for case in cases]
    ratios = [(case[0] ** case[1], peer["seconds"] / row["seconds"]) for case, row, peer in pairs if row and peer]
    limits = (0, *CLASSES, math.inf)
    low, high = (f"{limit:.0e}".replace("+0", "") for limit in CLASSES)
    names = (f"less than {low}", f"{low} to {high}", f"at least {high}")
    lines = [
        "",
        "| tuples (k >= 3) | problems | times faster than OTT-JAX (geometric mean) | range |",
        "|---|---|---|---|",
    ]
    for name, least, most in zip(names, limits, limits[1:]):
        chosen = [ratio for tuples, ratio in ratios if least <= tuples < most]
        if chosen:
            mean = f"{geometric_mean(chosen):.0f}"
            lines.append(f"| {name} | {len(chosen)} | {mean} | {min(chosen):.0f} to {max(chosen):.0f} |")
    return lines if len(lines) > 3 else []


def _line(rows: list[dict[str, Any]], row: dict[str, Any]) -> str:
    """Return one row: the measurement of m3g, followed by those of the peers."""
    key = (row["n"], row["k"], row["epsilon"], row["tol"])
    peer, pot = find(rows, "ott-jax", *key), find(rows, "pot", *key)
    most = MAX_OPERATORS.get(key[:3]) if row["tol"] == 1e-3 else None

    def milliseconds(measured: dict[str, Any] | None, field: str = "seconds") -> str:
        return f"{measured[field] * 1e3:.2f}" if measured and field in measured else "-"

    def faster(field: str) -> str:
        return f"{peer['seconds'] / row[field]:.1f}" if peer and field in row else "-"

    cells = [
        row["n"],
        row["k"],
        f"{row['epsilon']:g}" + ("" if row["tol"] == 1e-3 else f" (tol {row['tol']:g}, {row['dtype']})"),
        f"{row['operators']}" + (f" ({most})" if most else ""),
        milliseconds(row),
        row["steps"],
        milliseconds(row, "fixed_seconds"),
        milliseconds(row, "compiled_seconds"),
        row.get("fixed_steps", "-"),
        f"{row['backward_ratio']:.2f}",
        f"{row['peak_bytes'] / 2**20:.0f}",
        f"{row['of_peak']:.0%}",
        milliseconds(peer),
        peer["steps"] if peer else "-",
        f"{peer['peak_bytes'] / 2**20:.0f}" if peer else "-",
        faster("seconds"),
        faster("compiled_seconds"),
        f"{TARGETS[key[:2]]:.2g}" if peer and key not in [(*case, 1e-3) for case in OUTSIDE] else "-",
        milliseconds(pot),
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def _launches(row: dict[str, Any]) -> str:
    calls = [f"{row[f'generated_{name}']} + {row[f'library_{name}']}" for name in ("forward", "backward")]
    return (
        f"\nStudent–teacher, k = {row['k']}, n = {row['n']}, {row['steps']} fixed steps, forward and backward: "
        f"{row['eager']} eager operators ({row['eager_forward']} of them forward). The compiled graph calls {calls[0]} "
        f"kernels forward and {calls[1]} backward: generated kernels + library calls (matrix products, "
        "factorisations), counted in the code that inductor generates for this device. On a CPU a generated kernel may "
        f"contain several loops, {row['loops']} in total according to inductor; a GPU launches each as a kernel."
    )


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot time against the number of tuples n^k, with one line per program and one panel per epsilon."""
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
