"""Random problems of the dense solver against Newton's method in float64 on the full tensor.

    python -m fuzz.multiway 5000 --seed 0

Each problem draws the number of views (2 to 8), sizes, features, batch, cost (ready tensor, function, csd, product,
sums, ranges), epsilon, tolerance, type, weights, mask and memory limit. The value, the marginals and the gradient of
the dense solver must agree with the reference up to the error that the tolerance and the dtype allow.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import m3g
from m3g.costs import Problem, along, as_cost
from m3g.solvers.gradients.response import solve_singular

COSTS = ["tensor", "function", "csd", "product", "0.5*cv + 0.5*product", "cv[:0.5] + product[0.5:]", "csd + 0.3*cosine"]
LIMITS = {2: 40, 3: 14, 4: 7, 5: 5, 6: 4, 7: 3, 8: 3}


@dataclass(frozen=True)
class Case:
    seed: int
    sizes: tuple[int, ...]
    d: int
    batch: int
    cost: str
    epsilon: float
    tol: float
    dtype: torch.dtype
    weighted: bool
    masked: bool
    slabs: bool


def draw(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    k = int(rng.choice(range(2, 9), p=[0.15, 0.3, 0.2, 0.15, 0.08, 0.06, 0.06]))
    masked = bool(rng.random() < 0.25)
    equal = masked or rng.random() < 0.5
    sizes = rng.integers(1, LIMITS[k] + 1, 1 if equal else k).tolist() * (k if equal else 1)
    cost = str(rng.choice(COSTS))
    dtype = torch.float32 if rng.random() < 0.5 else torch.float64
    epsilon = float(np.exp(rng.uniform(np.log(0.005), np.log(2.0))))
    if seed % 2:  # the kernel of csd is then a power of the squared mean
        epsilon = 2 / max(1, round(2 / epsilon))
    return Case(
        seed=seed,
        sizes=tuple(sizes),
        d=int(rng.integers(2, 17)),
        batch=int(rng.choice([1, 1, 2, 3])) if cost != "tensor" else 1,
        cost=cost,
        epsilon=epsilon,
        tol=float(rng.choice([1e-3, 1e-4] if dtype == torch.float32 else [1e-3, 1e-6, 1e-9])),
        dtype=dtype,
        weighted=bool(rng.random() < 0.3),
        masked=masked and cost not in ("tensor", "function"),
        slabs=bool(rng.random() < 0.2),
    )


def function(*z: Tensor) -> Tensor:
    total = z[0]
    for each in z[1:]:
        total = total + each
    return (total.square() + 0.1).sqrt().mean(-1)


def problem_of(case: Case) -> Problem:
    generator = torch.Generator().manual_seed(case.seed)
    if case.cost == "tensor":
        return m3g.costs.DenseProblem(torch.randn(case.sizes, generator=generator, dtype=torch.float64).to(case.dtype))
    shape = () if case.batch == 1 else (case.batch,)
    base = torch.randn(*shape, max(case.sizes), case.d, generator=generator, dtype=torch.float64)
    views = [
        torch.nn.functional.normalize(
            base[..., :n, :] + torch.randn(*shape, n, case.d, generator=generator, dtype=torch.float64), dim=-1
        ).to(case.dtype)
        for n in case.sizes
    ]
    if not case.masked:
        return as_cost(function if case.cost == "function" else case.cost)(views)
    stacked = torch.stack(views, -3)
    mask = torch.rand(stacked.shape[:-1], generator=generator) < 0.7
    return as_cost(case.cost)(torch.where(mask.unsqueeze(-1), stacked, 0.0), mask=mask)


def reference_solution(cost: Tensor, epsilon: float, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the coupling (n_1, …, n_k) and the value in float64, by damped Newton steps with a decreasing epsilon."""
    k, sizes = cost.ndim, list(cost.shape)
    target = torch.cat(weights)
    scale = epsilon
    while float(cost.max() - cost.min()) / scale > 20:
        scale *= 2
    potentials = torch.zeros_like(target)

    def coupling_at(f: Tensor, eps: float) -> Tensor:
        exponent = -cost.unsqueeze(0)
        for l, part in enumerate(f.split(sizes)):
            exponent = exponent + along(part.unsqueeze(0), (l,), k)
        return (exponent / eps).exp()

    def marginals_of(coupling: Tensor) -> Tensor:
        return torch.cat([coupling.sum([a + 1 for a in range(k) if a != l]) for l in range(k)], 1)[0]

    def height(f: Tensor, eps: float) -> float:
        value = float((f * target).sum() - eps * coupling_at(f, eps).sum())
        return value if np.isfinite(value) else -np.inf

    while True:
        for _ in range(4):  # Sinkhorn sweeps
            for l in range(k):
                exponent = -cost
                parts = list(potentials.split(sizes))
                for m, part in enumerate(parts):
                    exponent = exponent + along(part.unsqueeze(0), (m,), k)[0]
                sums = (exponent / scale).logsumexp([a for a in range(k) if a != l])
                parts[l] = parts[l] - scale * (sums - weights[l].log())
                potentials = torch.cat(parts)
        for _ in range(200):
            coupling = coupling_at(potentials, scale)
            marginals = marginals_of(coupling)
            if float((marginals - target).abs().sum()) < 1e-11:
                break
            pairs = {
                (l, m): coupling.sum([a + 1 for a in range(k) if a not in (l, m)]) if k > 2 else coupling
                for l in range(k)
                for m in range(l + 1, k)
            }
            step = solve_singular(pairs, marginals.unsqueeze(0), (target - marginals).unsqueeze(0), sizes)[0] * scale
            length, before = 1.0, height(potentials, scale)
            while length > 1e-6 and height(potentials + length * step, scale) < before - 1e-13 * abs(before):
                length /= 3
            potentials = potentials + length * step
        if scale == epsilon:
            break
        scale = max(epsilon, scale / 2)
    coupling = coupling_at(potentials, epsilon)
    return coupling[0], (potentials * target).sum() - epsilon * coupling.sum()


def check(case: Case) -> str | None:
    """Return the fault of a solution; None if it is correct."""
    problem = problem_of(case)
    for tensor in problem.tensors:
        tensor.requires_grad_(tensor.is_leaf)
    generator = torch.Generator().manual_seed(case.seed + 1)
    weights = None
    if case.weighted:
        weights = [torch.rand(n, generator=generator, dtype=torch.float64) + 0.05 for n in case.sizes]
        weights = [weight / weight.sum() for weight in weights]
    solver = m3g.Dense(memory_limit=1) if case.slabs else m3g.Dense()
    solution = m3g.solve(problem, epsilon=case.epsilon, tol=case.tol, solver=solver, weights=weights)
    if not solution.converged:
        return f"not converged: {solution}"
    full = weights or [torch.full((n,), 1 / n, dtype=torch.float64) for n in case.sizes]
    dense_costs = problem.with_tensors([tensor.detach().double() for tensor in problem.tensors]).dense()
    # The gradient may overwrite the kernel, and the coupling replaces it, so both orders are tested.
    gradients = solution_gradients(problem, solution) if case.seed % 3 else None
    couplings = solution.coupling().reshape(-1, *case.sizes).double()
    gradients = gradients or solution_gradients(problem, solution)
    values = solution.value.reshape(-1).double()
    spread = float(dense_costs.max() - dense_costs.min())
    rounding = 1e-5 if case.dtype == torch.float32 else 1e-11
    exact = []
    for b in range(len(dense_costs)):
        coupling, value = reference_solution(dense_costs[b], case.epsilon, full)
        exact.append(coupling)
        marginals = [couplings[b].sum([a for a in range(len(case.sizes)) if a != l]) for l in range(len(case.sizes))]
        error = sum(float((m - a).abs().sum()) for m, a in zip(marginals, full))
        if error > 1.05 * case.tol + rounding:
            return f"marginals deviate by {error:.2e}"
        allowed = case.tol * (spread + case.epsilon) + rounding * (1 + spread + float(dense_costs.abs().max()))
        if abs(float(values[b] - value)) > allowed:
            return f"value {float(values[b]):.9g} should be {float(value):.9g}, allowed {allowed:.1e}"
    exact_coupling = m3g.costs.coupling.TensorCoupling(torch.stack(exact))
    expected = problem.with_tensors([tensor.detach().double() for tensor in problem.tensors]).gradient(exact_coupling)
    # An error of tol in the marginals changes the coupling by up to tol times the condition number of the dual.
    distance = max(float((p - q).abs().sum()) for p, q in zip(couplings, exact))
    largest = max(1.0, max(float(g.abs().max()) for g in expected) * max(case.sizes))
    for grad, reference in zip(gradients, expected):
        deviation = float((grad.double() - reference).abs().max())
        if deviation > (2 * distance + 100 * rounding) * largest * 4:
            return f"gradient deviates by {deviation:.2e}, the coupling by {distance:.2e}"
    return None


def solution_gradients(problem: Problem, solution: m3g.Solution) -> tuple[Tensor, ...]:
    with torch.no_grad():
        return problem.detached().gradient(solution.coupling_form)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    failures = 0
    for seed in range(options.seed, options.seed + options.count):
        case = draw(seed)
        try:
            fault = check(case)
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        if fault is not None:
            failures += 1
            print(f"{case}: {fault}", flush=True)
        if (seed + 1 - options.seed) % 100 == 0:
            print(f"{seed + 1 - options.seed} problems so far, {failures} failures", flush=True)
    print(f"{options.count} problems, {failures} failures", flush=True)
    raise SystemExit(failures > 0)


if __name__ == "__main__":
    main()
