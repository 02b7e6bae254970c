"""Independent reference solver: damped Newton steps on the dense dual in float64, in numpy.

It shares nothing with the library: costs come from literal formulas, the coupling is the full tensor, and a solution
is used only if its marginals are accurate to 1e-9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class DenseSolution:
    """The optimum of a dense problem: its value OT_eps, the coupling (n_1, …, n_k) and the error of its marginals."""

    value: float
    coupling: Array
    error: float


def along(vector: Array, axis: int, k: int) -> Array:
    return vector.reshape([-1 if a == axis else 1 for a in range(k)])


def sums(tensor: Array, kept: Sequence[int]) -> Array:
    return tensor.sum(axis=tuple(a for a in range(tensor.ndim) if a not in kept))


def solve_dense(cost: Array, epsilon: float, weights: Sequence[Array], *, goal: float = 1e-10) -> DenseSolution:
    """Maximise Σ ⟨f_l, a_l⟩ - eps Σ exp((⊕f - C)/eps) over f, from a large epsilon down to the requested one.

    Points of weight 0 are left out; their rows of the coupling are 0.
    """
    kept = [np.flatnonzero(weight > 0) for weight in weights]
    reduced = cost[np.ix_(*kept)]
    targets = [weight[rows] for weight, rows in zip(weights, kept)]
    mass = float(targets[0].sum())
    targets = [target / mass for target in targets]
    potentials = [np.zeros(len(target)) for target in targets]
    step = max(epsilon, float(np.ptp(reduced)) / 4)
    while True:
        coupling, error = _newton(reduced, step, targets, potentials, goal if step == epsilon else 1e-3)
        if step == epsilon:
            break
        step = max(epsilon, step / 2)
    # With mass M the optimal coupling is M times that of mass 1, and one potential grows by eps log M.
    value = sum(float(f @ a) for f, a in zip(potentials, targets)) - epsilon
    full = np.zeros(cost.shape)
    full[np.ix_(*kept)] = mass * coupling
    return DenseSolution(mass * (value + epsilon * np.log(mass)), full, mass * error)


def _newton(
    cost: Array, epsilon: float, targets: Sequence[Array], potentials: list[Array], goal: float
) -> tuple[Array, float]:
    """Damped Newton steps on the dual; `potentials` are changed in place."""
    k = cost.ndim
    coupling, height = _coupling(cost, epsilon, targets, potentials)
    for _ in range(300):
        marginals = [sums(coupling, (l,)) for l in range(k)]
        error = sum(float(np.abs(m - a).sum()) for m, a in zip(marginals, targets))
        if error <= goal:
            break
        step = _direction(coupling, marginals, targets, error)
        length = min(1.0, 8.0 / max(float(np.abs(step).max()), 1e-300))
        pieces = np.split(step, np.cumsum([len(a) for a in targets])[:-1])
        for _ in range(40):
            trial = [f + epsilon * length * piece for f, piece in zip(potentials, pieces)]
            tried, reached = _coupling(cost, epsilon, targets, trial)
            if reached >= height - 1e-15 * abs(height):
                break
            length /= 2
        else:
            break
        potentials[:] = trial
        coupling, height = tried, reached
    marginals = [sums(coupling, (l,)) for l in range(k)]
    return coupling, sum(float(np.abs(m - a).sum()) for m, a in zip(marginals, targets))


def _coupling(cost: Array, epsilon: float, targets: Sequence[Array], potentials: list[Array]) -> tuple[Array, float]:
    """The coupling with view 0 scaled to its weights (f_0 is changed in place), and the dual value over epsilon."""
    k = cost.ndim
    exponent = -cost / epsilon
    for l in range(1, k):
        exponent = exponent + along(potentials[l] / epsilon, l, k)
    peak = exponent.max(axis=tuple(range(1, k)))
    scaled = np.exp(exponent - along(peak, 0, k))
    totals = sums(scaled, (0,))
    potentials[0] = epsilon * (np.log(targets[0]) - np.log(totals) - peak)
    coupling = scaled * along(targets[0] / totals, 0, k)
    return coupling, sum(float(f @ a) for f, a in zip(potentials, targets)) / epsilon


def _direction(coupling: Array, marginals: Sequence[Array], targets: Sequence[Array], error: float) -> Array:
    """Solve H x = a - m with H = [diag(m_l) on the diagonal, P_lm elsewhere]; a ridge removes the null space."""
    sizes = [len(m) for m in marginals]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    hessian = np.diag(np.concatenate(marginals))
    for l, m in combinations(range(len(sizes)), 2):
        pair = sums(coupling, (l, m))
        hessian[starts[l] : starts[l + 1], starts[m] : starts[m + 1]] = pair
        hessian[starts[m] : starts[m + 1], starts[l] : starts[l + 1]] = pair.T
    right = np.concatenate([a - m for a, m in zip(targets, marginals)])
    diagonal = np.diag_indices_from(hessian)
    hessian[diagonal] *= 1 + min(0.03, 0.03 * error)
    hessian[diagonal] += 1e-14
    return np.linalg.lstsq(hessian, right, rcond=1e-13)[0]
