"""Programs to measure, with one interface: `prepare(views, epsilon, tol)` returns a function to time.

That function solves once and returns (value, steps): the entropic cost of the paper, `⟨P, C⟩ + eps ⟨P, log P - 1⟩`,
for the circular variance of the views (NaN for m3g, see `m3g_value`), and the number of sweeps or steps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Solve = Callable[[], tuple[float, int]]


def m3g_loss(views: Tensor, epsilon: float, tol: float) -> Solve:
    """Return the loss as a user calls it: validation, normalisation, solve, gap. The value is NaN, see `m3g_value`."""
    import m3g

    loss = m3g.M3GLoss(epsilon=epsilon, tol=tol)

    def solve() -> tuple[float, int]:
        with torch.no_grad():
            loss(views)
        assert loss.last is not None
        return float("nan"), loss.last.num_steps

    return solve


def m3g_value(views: Tensor, epsilon: float, tol: float) -> float:
    """Return the entropic cost, which the loss does not return."""
    import m3g

    return float(m3g.solve(m3g.CircularVariance()(views), epsilon=epsilon, tol=tol).value)


def ott(views: Tensor, epsilon: float, tol: float) -> Solve:
    """Return OTT-JAX's MMSinkhorn with its defaults, compiled before it is timed.

    With all points divided by k, its cost is the circular variance.
    """
    import jax
    import jax.numpy as jnp
    from ott.experimental import mmsinkhorn

    if views.dtype == torch.float64:
        jax.config.update("jax_enable_x64", True)
    points = [jnp.asarray(view.numpy() / len(views)) for view in views]
    solver = mmsinkhorn.MMSinkhorn(threshold=tol)
    compiled = jax.jit(lambda xs: solver(xs, epsilon=epsilon))

    def solve() -> tuple[float, int]:
        out = compiled(points)
        return float(out.ent_reg_cost) - epsilon, int(out.n_iters)

    solve()
    return solve


def pot(views: Tensor, epsilon: float, tol: float) -> Solve:
    """Return POT's log-domain Sinkhorn for two views."""
    import ot

    x, y = views
    weights = torch.full((len(x),), 1 / len(x), dtype=views.dtype)

    def solve() -> tuple[float, int]:
        cost = (2 - 2 * x @ y.T) / 4
        plan, log = ot.sinkhorn(
            weights, weights, cost, epsilon, method="sinkhorn_log", stopThr=tol, numItermax=5000, log=True, warn=False
        )
        return float((plan * cost).sum() + epsilon * (torch.xlogy(plan, plan) - plan).sum()), int(log["niter"])

    return solve


PROGRAMS = {"m3g": m3g_loss, "ott-jax": ott, "pot": pot}
