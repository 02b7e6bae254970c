"""Marginals from each accessor of a solution, compared with the reported error."""

from __future__ import annotations

import numpy as np

import m3g
from fuzz.cases import Case, cost_unit, weights_of
from fuzz.dense import Array, along, sums


def wrong_accessor(case: Case, solution: m3g.Solution, b: int, cost: Array) -> str:
    """Return the first accessor of problem b whose marginals deviate by more than the reported error; "" for none."""
    weights = weights_of(case) or [np.full(n, 1 / n) for n in case.sizes]
    reported = float(solution.error.reshape(-1)[b])
    single = solution.value.element_size() < 8
    # Rounding errors of exponents scale with their terms, which may cancel.
    largest = max(float(np.abs(cost).max()), cost_unit(case.cost, case.scale, case.k)) / case.epsilon
    allowed = 1.05 * reported + case.mass * case.k * (1e-5 if single else 1e-12 + 1e-15 * largest)
    if not reported <= 1.001 * case.tol * case.mass:
        return f"error {reported:.2e} with tol {case.tol:g} and mass {case.mass:g}"
    deviations = {"marginal": 0.0, "pair_marginal": 0.0}
    for l in range(case.k):
        marginal = solution.marginal(l).reshape(-1, case.sizes[l])[b].double().numpy()
        deviations["marginal"] += float(np.abs(marginal - weights[l]).sum())
        for m in range(case.k):
            if m != l:
                pair = solution.pair_marginal(l, m).reshape(-1, case.sizes[l], case.sizes[m])[b].double().numpy()
                deviations["pair_marginal"] = max(
                    deviations["pair_marginal"], float(np.abs(pair.sum(1) - weights[l]).sum())
                )
    deviations["coupling"] = _deviation(solution.coupling().reshape(-1, *case.sizes)[b].double().numpy(), weights)
    # The costs of the reference and those of the solve differ by rounding, each in its own type.
    digits = 1e-6 if case.dtype == "float32" and not case.mixed else 1e-14
    rounded = largest * case.k**2 * digits
    if solution.standard_error is None and rounded < 0.1:
        exponent = -cost / case.epsilon
        for l, potential in enumerate(solution.potentials):
            part = potential.reshape(-1, case.sizes[l])[b].double().numpy() / case.epsilon
            exponent = exponent + along(np.maximum(part, -1e300), l, case.k)
        deviation = _deviation(np.exp(exponent), weights)
        if deviation > allowed + 2 * case.mass * case.k * rounded:
            return f"the marginals of the potentials deviate by {deviation:.2e}, reported {reported:.2e}"
    for name, deviation in deviations.items():
        if not deviation <= allowed:
            return f"{name} deviates by {deviation:.2e}, reported {reported:.2e}"
    return ""


def _deviation(coupling: Array, weights: list[Array]) -> float:
    return sum(float(np.abs(sums(coupling, (l,)) - weight).sum()) for l, weight in enumerate(weights))
