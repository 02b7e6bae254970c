"""Exact and approximate search: `python -m benchmarks.search` writes benchmarks/results/search.md.

Rows are drawn around 1000 centres in three views of 64 dimensions. Each of 20 queries is a noisy copy of a row. Times
are processor times of one thread, the minimum of three calls; both searches run in turns. The index is built once, in
a temporary folder.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch

from m3g.evaluation.search import Neighbours, search

VIEWS, FEATURES, QUERIES, TOP, CENTRES = 3, 64, 20, 10, 1000


def measured(rows: int) -> dict[str, float]:
    """Return seconds of both searches and of building the index, and the fraction of nearest rows that are found."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CENTRES, FEATURES, generator=generator)
    objects = centres[torch.randint(CENTRES, (rows,), generator=generator)]
    objects = objects + torch.randn(VIEWS, rows, FEATURES, generator=generator)
    chosen = torch.randint(rows, (QUERIES,), generator=generator)
    queries = objects[:, chosen] + 0.5 * torch.randn(VIEWS, QUERIES, FEATURES, generator=generator)

    def timed(approximate: bool) -> tuple[float, Neighbours]:
        start = time.process_time()
        nearest = search(queries, objects, top=TOP, approximate=approximate)
        return time.process_time() - start, nearest

    first, _ = timed(True)  # builds the index
    exact, approximate = [], []
    for _ in range(3):
        exact.append(timed(False))
        approximate.append(timed(True))
    pairs = zip(exact[0][1].indices.tolist(), approximate[0][1].indices.tolist(), strict=True)
    shared = sum(len(set(one) & set(other)) for one, other in pairs)
    fastest = min(seconds for seconds, _ in approximate)
    return {
        "exact": min(seconds for seconds, _ in exact),
        "approximate": fastest,
        "build": first - fastest,
        "found": shared / (QUERIES * TOP),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 200_000, 1_000_000])
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        f"Written by `python -m benchmarks.search`: processor time of {QUERIES} queries for the {TOP} nearest rows, "
        f"{VIEWS} views of {FEATURES} dimensions, one thread.",
        "",
        "| rows | exact, s | approximate, s | index, s | nearest rows found, % |",
        "| --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        for rows in options.rows:
            numbers = measured(rows)
            seconds = " | ".join(f"{numbers[name]:.2f}" for name in ("exact", "approximate", "build"))
            lines.append(f"| {rows:,} | {seconds} | {100 * numbers['found']:.0f} |")
            print(lines[-1], flush=True)
    (Path(__file__).parent / "results" / "search.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
