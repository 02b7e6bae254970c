"""Random solves and losses, compared with the dense reference and checked against the guarantees."""

from __future__ import annotations

import warnings

import numpy as np
import torch

import m3g
from fuzz.accessors import wrong_accessor
from fuzz.cases import Case, cost_of, edges_of, simpler, solver_of, views_of, weights_of
from fuzz.costs import cost_tensor
from fuzz.dense import Array, DenseSolution, solve_dense, sums
from fuzz.outcome import Outcome


def references_of(case: Case, views: list[torch.Tensor]) -> list[tuple[DenseSolution, Array]]:
    """Return the dense solution and the cost tensor of every problem of the batch."""
    weights = weights_of(case) or [np.full(n, 1 / n) for n in case.sizes]
    out = []
    for b in range(views[0].shape[0]):
        points = [view[b].double().numpy() for view in views]
        if case.loss:
            points = [point / np.linalg.norm(point, axis=-1, keepdims=True) for point in points]
        cost = cost_tensor(case.cost, points, edges_of(case))
        out.append((solve_dense(cost, case.epsilon, weights), cost))
    return out


def rounding(case: Case, cost: Array) -> float:
    """Return the deviation of a solution that its dtype allows."""
    unit = 2e-6 if case.dtype == "float32" and not case.mixed else 1e-9
    return unit * max(1.0, float(np.abs(cost).max())) * case.k


def potential_range(case: Case, cost: Array) -> float:
    """Return the range of the potentials: that of the costs, and epsilon |log a| of the smallest weight a.

    An error of the marginals changes the value by at most this range times that error.
    """
    weights = weights_of(case) or [np.full(n, case.mass / n) for n in case.sizes]
    least = min(float(weight[weight > 0].min()) for weight in weights) / case.mass
    return float(np.ptp(cost)) + case.epsilon * max(1.0, -np.log(least))


def try_case(case: Case) -> Outcome:
    """Return the outcome: held, refused (a ValueError of one sentence), warned (converged=False) or failed."""
    views = views_of(case)
    if case.masked:
        return _try_masked(case, views)
    references = references_of(case, views)
    if any(reference.error > 1e-9 * case.mass for reference, _ in references):
        return Outcome("skipped", "the reference did not converge")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return (
                _check_loss(case, views, references, caught) if case.loss else _check(case, views, references, caught)
            )
        except ValueError as error:
            text = str(error)
            return Outcome("refused", text) if "\n" not in text and len(text) < 400 else Outcome("failed", text)
        except Exception as error:
            return Outcome("failed", f"{type(error).__name__}: {error}")


def _check(case: Case, views: list[torch.Tensor], references: list, caught: list) -> Outcome:
    given = views if case.batch else [view[0] for view in views]
    weights = weights_of(case)
    solution = m3g.solve(
        m3g.costs.as_cost(cost_of(case))(given),
        epsilon=case.epsilon,
        tol=case.tol,
        solver=solver_of(case),
        weights=None if weights is None else [torch.tensor(weight) for weight in weights],
    )
    values, errors = solution.value.reshape(-1).tolist(), solution.error.reshape(-1).tolist()
    if not all(np.isfinite([*values, *errors])):
        return Outcome("failed", f"not finite: value {values}, error {errors}, converged={solution.converged}")
    if not solution.converged:
        return Outcome("warned", f"not converged: {solution.result}")
    if solution.standard_error is not None:
        return _check_sampled(case, solution, references, caught)
    for b, (value, (reference, cost)) in enumerate(zip(values, references)):
        factor = 2 if solution.solver == "sinkhorn" or case.epsilon > 0.02 * np.ptp(cost) else 10
        allowed = rounding(case, cost) + factor * case.tol * potential_range(case, cost)
        allowed = case.mass * (allowed + rounding(case, cost) * case.epsilon * abs(np.log(case.mass)))
        if abs(value - reference.value) > allowed:
            return Outcome("failed", f"value {value:.9g}, reference {reference.value:.9g}, allowed {allowed:.1e}")
        fault = wrong_accessor(case, solution, b, cost)
        if fault:
            return Outcome("failed", fault)
        if case.epsilon > 0.1 * np.ptp(cost):
            pair = solution.pair_marginal(0, case.k - 1).reshape(-1, case.sizes[0], case.sizes[-1])[b].double().numpy()
            deviation = float(np.abs(pair - sums(reference.coupling, (0, case.k - 1))).sum())
            if deviation > case.mass * (200 * case.tol + 1e3 * rounding(case, cost)):
                return Outcome("failed", f"pair marginal deviates by {deviation:.2e}")
    return Outcome("held")


def _check_sampled(case: Case, solution: m3g.Solution, references: list, caught: list) -> Outcome:
    values = solution.value.reshape(-1).double().numpy()
    spread = solution.standard_error.reshape(-1).double().numpy()
    true = np.array([reference.value for reference, _ in references])
    slack = np.array([rounding(case, cost) + 3 * case.tol * (np.ptp(cost) + case.epsilon) for _, cost in references])
    slack = case.mass * (slack + rounding(case, references[0][1]) * case.epsilon * abs(np.log(case.mass)))
    for b, (_, cost) in enumerate(references):
        fault = wrong_accessor(case, solution, b, cost)
        if fault:
            return Outcome("failed", fault)
    deviations = (np.abs(values - true) - slack) / np.maximum(spread, 1e-300)
    if deviations.max() > 5:
        b = int(deviations.argmax())
        text = f"sampled {values[b]:.6g} ± {spread[b]:.2g}, reference {true[b]:.6g}"
        warned = any(issubclass(one.category, m3g.solvers.SamplingWarning) for one in caught)
        return Outcome("failed", text + (", warned, but converged=True" if warned else ", no warning"))
    return Outcome("held", "beyond two standard errors" if deviations.max() > 2 else "")


def _check_loss(case: Case, views: list[torch.Tensor], references: list, caught: list) -> Outcome:
    """Check the gap and its gradient, that of ⟨J - P*, C(normalised x)⟩, against the reference."""
    dtype = torch.promote_types(views[0].dtype, views[1].dtype)
    stacked = torch.stack([view.to(dtype) for view in views], 1)
    points = (stacked if case.batch else stacked[0]).clone().requires_grad_()
    given = [view.to(one.dtype) for view, one in zip(points.unbind(-3), views)] if case.mixed else points
    gap = m3g.matching_gap(given, epsilon=case.epsilon, cost=cost_of(case), solver=solver_of(case), tol=case.tol)
    (gradient,) = torch.autograd.grad(gap.sum(), points)
    if any(issubclass(one.category, UserWarning) for one in caught):
        return Outcome("warned", str(caught[-1].message)[:80])
    if case.solver == "sampled":
        return Outcome("held") if bool(torch.isfinite(gradient).all()) else Outcome("failed", "gradient not finite")
    n = case.sizes[0]
    for value, (reference, cost) in zip(gap.detach().reshape(-1).tolist(), references):
        matched = float(np.mean(cost[(np.arange(n),) * case.k]))
        true = matched - case.epsilon * (np.log(n) + 1) - reference.value
        allowed = rounding(case, cost) + 10 * case.tol * float(np.ptp(cost) + case.epsilon)
        if abs(value - true) > allowed:
            return Outcome("failed", f"gap {value:.9g}, reference {true:.9g}, allowed {allowed:.1e}")
        if value < 0:
            return Outcome("failed", f"gap {value:.3g} is negative")
    return _check_gradient(case, views, gradient.reshape(stacked.shape).double().numpy(), references)


def _check_gradient(case: Case, views: list[torch.Tensor], gradient: Array, references: list) -> Outcome:
    """Check a directional derivative against central differences of the reference gap, if it is smooth enough."""
    if case.tol > 1e-5 or case.dtype != "float64" or case.mixed or case.epsilon < 0.05 * np.ptp(references[0][1]):
        return Outcome("held") if np.isfinite(gradient).all() else Outcome("failed", "gradient not finite")
    rng = np.random.default_rng(case.seed + 4)
    points = [view[0].double().numpy() for view in views]
    direction = [case.scale * rng.normal(size=point.shape) for point in points]
    weights = [np.full(n, 1 / n) for n in case.sizes]

    def gap_at(t: float) -> float:
        moved = [point + t * change for point, change in zip(points, direction)]
        moved = [point / np.linalg.norm(point, axis=-1, keepdims=True) for point in moved]
        cost = cost_tensor(case.cost, moved, edges_of(case))
        matched = float(np.mean(cost[(np.arange(case.sizes[0]),) * case.k]))
        return matched - solve_dense(cost, case.epsilon, weights).value

    step = 1e-5
    expected = (gap_at(step) - gap_at(-step)) / (2 * step)
    derivative = float(sum((gradient[0, l] * change).sum() for l, change in enumerate(direction)))
    scale = max(abs(expected), float(np.abs(references[0][1]).max()), 1e-6)
    rounded = 1e-13 * max(case.epsilon, 1.0) / step  # rounding error of a difference of two gaps
    if abs(derivative - expected) > 1e-3 * scale + rounded:
        return Outcome("failed", f"directional derivative {derivative:.6g}, reference {expected:.6g}")
    return Outcome("held")


def _try_masked(case: Case, views: list[torch.Tensor]) -> Outcome:
    """Check that the gap with missing points is finite, non-negative, and independent of their values."""
    rng = np.random.default_rng(case.seed + 5)
    mask = torch.tensor(rng.random((case.k, case.sizes[0])) < 0.7)
    mask[0] |= ~mask.any(0)
    points = torch.stack([view[0].to(getattr(torch, case.dtype)) for view in views])
    garbage = torch.where(mask.unsqueeze(-1), points, torch.tensor(7.0, dtype=points.dtype))
    results = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for given in (points, garbage):
                leaf = given.clone().requires_grad_()
                gap = m3g.matching_gap(
                    leaf, mask=mask, epsilon=case.epsilon, cost=cost_of(case), solver=solver_of(case), tol=case.tol
                )
                (gradient,) = torch.autograd.grad(gap, leaf)
                results.append((gap.item(), gradient))
        except ValueError as error:
            return Outcome("refused", str(error))
        except Exception as error:
            return Outcome("failed", f"{type(error).__name__}: {error}")
    if any(issubclass(one.category, UserWarning) for one in caught):
        return Outcome("warned", str(caught[-1].message)[:80])
    (gap, gradient), (again, _) = results
    if not (np.isfinite(gap) and bool(torch.isfinite(gradient).all())):
        return Outcome("failed", f"not finite: gap {gap}")
    if abs(gap - again) > 1e-6 * max(1.0, abs(gap)):
        return Outcome("failed", f"values at missing points change the gap: {gap} and {again}")
    if bool((gradient[~mask] != 0).any()):
        return Outcome("failed", "missing points have a gradient")
    if gap < 0:
        return Outcome("failed", f"gap {gap} is negative")
    return Outcome("held")


def simplest(case: Case, *, max_tries: int = 60) -> Case:
    """Return the simplest case that still fails, by removing one property at a time."""
    tries, simplified = 0, True
    while simplified and tries < max_tries:
        simplified = False
        for candidate in simpler(case):
            tries += 1
            if try_case(candidate).kind == "failed":
                case, simplified = candidate, True
                break
            if tries >= max_tries:
                break
    return case
