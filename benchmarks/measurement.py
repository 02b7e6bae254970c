"""One measurement in a separate process: `python -m benchmarks.measurement '{"program": …}'` prints one JSON line."""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

SECONDS = 1.0  # total time of repeated calls
LONG = 3.0  # seconds of a call that is not repeated
MAX_FIXED_STEPS = 12


def noisy_views(k: int, n: int, noise: float = 1.0, *, d: int = 64) -> torch.Tensor:
    """Return views (k, n, d) on the sphere: a shared base plus noise."""
    generator = torch.Generator().manual_seed(0)
    views = torch.randn(n, d, generator=generator) + noise * torch.randn(k, n, d, generator=generator)
    return torch.nn.functional.normalize(views, dim=-1)


def peak_bytes() -> int:
    """Return the peak memory of this process."""
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def live_bytes(call: Callable[[], object]) -> int:
    """Return the peak bytes of the tensors that one call allocates."""
    import weakref

    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    sizes: dict[int, int] = {}
    peak = 0

    class Live(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal peak
            given = {leaf.data_ptr() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
            out = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    storage = leaf.untyped_storage()
                    key = storage.data_ptr()
                    if storage.nbytes() and key not in sizes and key not in given:
                        sizes[key] = storage.nbytes()
                        weakref.finalize(storage, sizes.pop, key, None)
            peak = max(peak, sum(sizes.values()))
            return out

    with Live():
        call()
    return peak


def seconds(call: Callable[[], object]) -> float:
    """Return the median time of a call, after a warm-up call.

    Calls are repeated for about a second, at least three times; a call of more than `LONG` seconds is measured once.
    """
    call()
    times: list[float] = []
    while not times or (times[0] < LONG and len(times) < 3) or (sum(times) < SECONDS and len(times) < 500):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def matmul_peak() -> float:
    """Return the floating-point operations per second of a plain float32 matrix product."""
    a = torch.randn(2048, 2048)
    return 2 * 2048**3 / seconds(lambda: a @ a)


def matmul_operations(call: Callable[[], object]) -> int:
    """Return the floating-point operations of the matrix products of one call."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counted:
        call()
    return counted.get_total_flops()


def operators(call: Callable[[], object]) -> int:
    """Return the number of top-level PyTorch operators of one call."""
    from torch.profiler import ProfilerActivity, profile

    call()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        call()

    def inside(event: Any) -> bool:
        parent = event.cpu_parent
        return parent is not None and (parent.name.startswith("aten::") or inside(parent))

    return sum(event.name.startswith("aten::") and not inside(event) for event in recorded.events())


def compiled_forward(views: torch.Tensor, epsilon: float, tol: float) -> dict[str, float]:
    """Time the loss with the fewest fixed steps that reach the tolerance: eager, and compiled into one graph."""
    import m3g

    problem = m3g.CircularVariance()(views)
    for steps in range(1, MAX_FIXED_STEPS + 1):
        solver = m3g.Factored(fixed_steps=steps)
        if m3g.solve(problem, epsilon=epsilon, tol=tol, solver=solver).converged:
            break
    else:
        return {}
    loss = m3g.M3GLoss(epsilon=epsilon, tol=tol, solver=solver)
    graph = torch.compile(loss, fullgraph=True)
    with torch.no_grad():
        row = {"fixed_steps": steps, "fixed_seconds": seconds(lambda: loss(views))}
        row["compiled_seconds"] = seconds(lambda: graph(views))
        row["compiled_difference"] = float((graph(views) - loss(views)).abs())
    return row


def launches(n: int, k: int, steps: int) -> dict[str, int]:
    """Count the calls of a student–teacher loss, forward and backward: eager operators, and calls when compiled.

    In the code that inductor generates, calls of generated kernels (fused loops) and of libraries (matrix products,
    factorisations) are counted. On a CPU one generated kernel may contain several fused loops, which a GPU launches
    separately: `loops` counts them.
    """
    from torch._inductor import metrics
    from torch._inductor.utils import run_and_get_code

    import m3g

    loss = m3g.M3GLoss(solver=m3g.Factored(fixed_steps=steps))
    student, teacher = noisy_views(k, n).requires_grad_(), noisy_views(k, n).flip(-1)

    def both(function: Callable[..., torch.Tensor]) -> None:
        function(student, teacher=teacher).backward()

    row = {"eager_forward": operators(lambda: loss(student, teacher=teacher)), "eager": operators(lambda: both(loss))}
    metrics.reset()
    _, sources = run_and_get_code(both, torch.compile(loss, fullgraph=True))
    row["loops"] = metrics.generated_kernel_count
    for name, source in zip(("forward", "backward"), sources, strict=True):
        body = source[source.index("def call(") :]
        row[f"generated_{name}"] = len(re.findall(r"^\s+cpp_fused\w*\(|\.run\(", body, re.MULTILINE))
        row[f"library_{name}"] = len(re.findall(r"extern_kernels\.\w+\(|torch\.ops\.aten\.[\w.]+\(", body))
    return row


def main(job: dict[str, Any]) -> dict[str, Any]:
    from benchmarks.peers import PROGRAMS, m3g_value

    if job["program"] == "launches":
        return launches(job["n"], job["k"], job["steps"])

    n, k, epsilon, tol = job["n"], job["k"], job["epsilon"], job["tol"]
    views = noisy_views(k, n).to(getattr(torch, job.get("dtype", "float32")))
    tiny = noisy_views(k, 4).to(views.dtype)
    PROGRAMS[job["program"]](tiny, epsilon, tol)()  # exclude the memory of the libraries
    before = peak_bytes()
    solve = PROGRAMS[job["program"]](views, epsilon, tol)
    value, steps = solve()
    row = {"peak_bytes": max(0, peak_bytes() - before), "steps": steps}
    row["seconds"] = seconds(solve)
    row["value"] = value
    row["dtype"] = job.get("dtype", "float32")
    if job["program"] == "m3g":
        import m3g

        row["value"] = m3g_value(views, epsilon, tol)
        loss = m3g.M3GLoss(epsilon=epsilon, tol=tol)
        leaf = views.clone().requires_grad_()
        both = seconds(lambda: loss(leaf).backward())
        row["backward_ratio"] = both / row["seconds"]
        problem = m3g.CircularVariance()(views)
        row["operators"] = operators(lambda: m3g.solve(problem, epsilon=epsilon, tol=tol))
        if job.get("compiled"):
            row.update(compiled_forward(views, epsilon, tol))
        row["of_peak"] = matmul_operations(solve) / row["seconds"] / matmul_peak() if k > 2 else 0.0
    return row


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measurement", description=__doc__)
    parser.add_argument("job", type=json.loads, help="the program and its settings, in JSON")
    print(json.dumps(main(parser.parse_args().job)))
