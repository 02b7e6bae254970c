"""Compare the solvers with those of an earlier commit, on cases of `solvers.py` and `sampled.py`.

    python -m benchmarks.beside COMMIT              writes results/beside.{json,md}
    python -m benchmarks.beside COMMIT --only growth   one part; writes results/beside-growth.{json,md}

The times of two runs on one machine differ by more than the times of the two versions. Both versions are therefore
measured in one run, each in a separate process, and solve the same views with the same seed in turns. The measure is
the processor time of a forward and backward pass, the minimum of at least `--repeats` passes for every seed. Other
programs affect processor time less than wall time. There is one thread, because the processor time of several threads
would include the time that they wait for each other.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent.parent
# Largest acceptable ratio to the time of the earlier commit.
ALLOWED = 1.1


def cases() -> dict[str, list[dict[str, Any]]]:
    """Return the cases by part: views, epsilon and the settings of the solver."""
    from benchmarks import sampled, solvers

    exact = [*solvers.SMALL, *solvers.MEDIUM, *solvers.LARGE]
    return {
        "exact": [{"solver": "auto", "k": k, "n": n, "epsilon": epsilon} for n, k, epsilon in exact],
        "large": [{"k": 12, "n": 512, "d": 128}],
        "growth": [{"k": k, "n": 256, "form": "products"} for k in sampled.VIEWS]
        + [{"k": 4, "n": n, "form": "products"} for n in sampled.POINTS],
        "many_points": [{"k": k, "n": n, "rank": max(4096, 4 * n)} for k, n in sampled.MANY],
        "accuracy": [
            {"k": k, "n": n, "noise": noise, "epsilon": epsilon, "tol": 1e-3 if epsilon > 0.02 else 1e-6}
            for k, n in sampled.SHAPES
            for epsilon in sampled.EPSILONS
            for noise in sampled.NOISES
        ],
    }


def serve() -> None:
    """Read cases from standard input, and print one JSON line per case with its time, steps and gap."""
    import torch

    import m3g
    from benchmarks.measurement import noisy_views

    warnings.simplefilter("ignore")
    for line in sys.stdin:
        case = json.loads(line)
        views = noisy_views(case["k"], case["n"], case.get("noise", 1.0), d=case.get("d", 64)).requires_grad_()
        settings = {name: case[name] for name in ("form", "rank") if name in case}
        solver = case.get("solver") or m3g.Sampled(seed=case["seed"], **settings)
        loss = m3g.M3GLoss(case.get("epsilon", 0.05), solver=solver, tol=case.get("tol", 1e-3), normalize=False)
        times: list[float] = []
        # Short solves are repeated for a total of 0.05 s.
        while len(times) < case["repeats"] or (sum(times) < 0.05 and len(times) < 100):
            start = time.process_time()
            value = loss(views)
            value.backward()
            times.append(time.process_time() - start)
        assert torch.isfinite(value)
        print(json.dumps({"seconds": min(times), "steps": loss.last.num_steps, "gap": value.item()}), flush=True)


class Version:
    """A process that measures the solver of one source tree."""

    def __init__(self, source: Path):
        paths = os.pathsep.join([str(source), str(HERE)])
        command = [sys.executable, "-c", "from benchmarks.beside import serve; serve()"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        )

    def measure(self, case: dict[str, Any]) -> dict[str, Any]:
        requests: IO[str] = self.process.stdin  # type: ignore[assignment]
        results: IO[str] = self.process.stdout  # type: ignore[assignment]
        requests.write(json.dumps(case) + "\n")
        requests.flush()
        line = results.readline()
        if not line:
            raise RuntimeError(f"the measuring process ended with exit code {self.process.wait()}.")
        measured: dict[str, Any] = json.loads(line)
        return measured

    def end(self) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait()


def run(earlier: Path, only: str | None, seeds: int, repeats: int) -> list[dict[str, Any]]:
    """Return one row per case: mean seconds of both versions over the seeds, and the ratio of each seed."""
    versions = {"earlier": Version(earlier), "now": Version(HERE / "src")}
    for version in versions.values():
        version.measure({"k": 3, "n": 8, "seed": 0, "repeats": 1})  # the first call is not counted
    rows = []
    for part, part_cases in cases().items():
        for case in part_cases if only in (None, part) else []:
            measured = [
                {
                    name: version.measure({**case, "seed": seed, "repeats": repeats})
                    for name, version in versions.items()
                }
                for seed in range(seeds)
            ]
            row: dict[str, Any] = {"part": part, **case}
            for name in versions:
                row[name] = sum(result[name]["seconds"] for result in measured) / seeds
                row[f"{name}_steps"] = [result[name]["steps"] for result in measured]
            row["ratio"] = row["now"] / row["earlier"]
            row["ratios"] = [result["now"]["seconds"] / result["earlier"]["seconds"] for result in measured]
            rows.append(row)
            print(_line(row), flush=True)
    for version in versions.values():
        version.end()
    return rows


def _line(row: dict[str, Any]) -> str:
    cells = [
        row["part"],
        row["k"],
        row["n"],
        row.get("epsilon", 0.05),
        row.get("noise", 1.0),
        f"{row['earlier'] * 1e3:.1f}",
        f"{row['now'] * 1e3:.1f}",
        f"{row['ratio']:.2f}",
        ", ".join(f"{ratio:.2f}" for ratio in row["ratios"]),
        " / ".join(", ".join(map(str, row[f"{name}_steps"])) for name in ("earlier", "now")),
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def as_markdown(rows: list[dict[str, Any]], commit: str, seeds: int, repeats: int) -> str:
    head = [
        f"Written by `python -m benchmarks.beside {commit} --seeds {seeds} --repeats {repeats}`. Processor "
        "time, forward and backward,",
        "mean over the seeds; both versions in turns, in one run.",
        "",
        "| part | k | n | epsilon | noise | earlier ms | now ms | ratio | by seed | steps, earlier / now |",
        "|---" * 10 + "|",
    ]
    foot = [""]
    for part in dict.fromkeys(row["part"] for row in rows):
        part_rows = [row for row in rows if row["part"] == part]
        total = sum(row["now"] for row in part_rows) / sum(row["earlier"] for row in part_rows)
        middle, worst = statistics.median(row["ratio"] for row in part_rows), max(row["ratio"] for row in part_rows)
        foot.append(f"- {part}: ratio of the sums {total:.2f}, median row {middle:.2f}, largest {worst:.2f}.")
    above = sum(row["ratio"] > ALLOWED for row in rows)
    foot.append(f"- Rows above {ALLOWED}: {above} of {len(rows)}.")
    return "\n".join(head + [_line(row) for row in rows] + foot) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("commit", help="the earlier commit")
    parser.add_argument("--only", choices=list(cases()), help="one part of the cases")
    parser.add_argument("--seeds", type=int, default=3, help="seeds per case")
    parser.add_argument("--repeats", type=int, default=3, help="minimum number of solves per seed; the fastest counts")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="output folder")
    options = parser.parse_args()
    for name in ("seeds", "repeats"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be a whole number of at least 1, got {getattr(options, name)}.")
    options.results.mkdir(parents=True, exist_ok=True)
    known = subprocess.run(["git", "cat-file", "-e", f"{options.commit}^{{commit}}"], cwd=HERE, capture_output=True)
    if known.returncode != 0:
        parser.error(f"commit must be a commit of this repository, got {options.commit!r}.")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "earlier"
        subprocess.run(["git", "worktree", "add", "--detach", "-q", tree, options.commit], cwd=HERE, check=True)
        try:
            rows = run(tree / "src", options.only, options.seeds, options.repeats)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=HERE, check=True)
    name = "beside" if options.only is None else f"beside-{options.only}"
    (options.results / f"{name}.json").write_text(json.dumps({"commit": options.commit, "rows": rows}, indent=1) + "\n")
    table = as_markdown(rows, options.commit, options.seeds, options.repeats)
    (options.results / f"{name}.md").write_text(table)
    print(table[table.index("\n- ") :])


if __name__ == "__main__":
    main()
