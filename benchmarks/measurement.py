"""One measurement in a process of its own: `python -m benchmarks.measurement '{"program": …}'` prints one JSON line."""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable

import torch

SECONDS = 1.0
LONG = 3.0


def noisy_views(k: int, n: int, d: int = 64) -> torch.Tensor:
    """A shared base plus unit noise, on the sphere."""
    generator = torch.Generator().manual_seed(0)
    views = torch.randn(1, n, d, generator=generator) + torch.randn(k, n, d, generator=generator)
    return torch.nn.functional.normalize(views, dim=-1)


def peak_bytes() -> int:
    """The most memory this process has held."""
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def seconds(call: Callable[[], object]) -> float:
    """Median of as many calls as fit into a second, after one to warm up; at least three, or one that is long."""
    call()
    times: list[float] = []
    while not times or (times[0] < LONG and len(times) < 3) or (sum(times) < SECONDS and len(times) < 500):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def matmul_peak() -> float:
    """Floating point operations per second of a plain float32 product."""
    a = torch.randn(2048, 2048)
    return 2 * 2048**3 / seconds(lambda: a @ a)


def main(job: dict) -> dict:
    from benchmarks.peers import PROGRAMS, our_value

    n, k, epsilon, tol = job["n"], job["k"], job["epsilon"], job["tol"]
    views = noisy_views(k, n).to(getattr(torch, job.get("dtype", "float32")))
    tiny = noisy_views(k, 4).to(views.dtype)
    PROGRAMS[job["program"]](tiny, epsilon, tol)()  # what the libraries themselves take is not counted
    before = peak_bytes()
    solve = PROGRAMS[job["program"]](views, epsilon, tol)
    value, steps = solve()
    row = {"peak_bytes": max(0, peak_bytes() - before), "steps": steps}
    row["seconds"] = seconds(solve)
    row["value"] = value
    row["dtype"] = job.get("dtype", "float32")
    if job["program"] == "m3g":
        import m3g

        row["value"] = our_value(views, epsilon, tol)
        loss = m3g.M3GLoss(epsilon=epsilon, tol=tol)
        leaf = views.clone().requires_grad_()
        both = seconds(lambda: loss(leaf).backward())
        row["backward_ratio"] = both / row["seconds"]
        # Three matrix products of n^k multiply-adds a step.
        row["of_peak"] = steps * 6 * n**k / row["seconds"] / matmul_peak() if k > 2 else 0.0
    return row


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
