"""Differentiable marginals of the optimal coupling P, by the implicit function theorem.

Let F be a function of marginals of P on some views, and G the sum of its derivatives with respect to these marginals,
each broadcast to the shape of P. Then

    dF/dC = P ∘ (⊕v - G) / eps,      H v = m(P ∘ G)

with the Newton matrix H of the dual and the one-view marginals m. The signed tensor dF/dC is the change of P if the
cost changes by G (response.py). `Problem.gradient` maps it, like a coupling, to derivatives with respect to the tensors
of the problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from m3g.solvers.gradients.response import response_of
from m3g.solvers.shared.precision import full_precision

if TYPE_CHECKING:
    from m3g.solvers.solution import Solution


def differentiable_marginals(solution: Solution, view_sets: Sequence[tuple[int, ...]]) -> tuple[Tensor, ...]:
    """Return the marginals of the coupling on the given sets of views, differentiable in the problem's tensors.

    Each set is a pair of views, or all views. Each marginal has shape (b, n, …). Marginals returned by one call share
    the backward pass.
    """
    if not solution.coupling_form.from_potentials:
        raise ValueError(
            "solver must be 'factored', 'dense' or 'sinkhorn' for pair marginals and couplings with "
            f"differentiable=True, got {solution.solver!r}."
        )
    marginals: tuple[Tensor, ...] = _Marginals.apply(solution, tuple(view_sets), *solution.problem.tensors)  # type: ignore[no-untyped-call]
    return marginals


class _Marginals(torch.autograd.Function):
    """Map (solution, view_sets, tensors) to marginals. Only the tensors have derivatives."""

    @staticmethod
    def forward(ctx: Any, solution: Solution, view_sets: tuple[tuple[int, ...], ...], *tensors: Tensor) -> Any:
        ctx.solution, ctx.view_sets = solution, view_sets
        ctx.set_materialize_grads(False)
        form = solution.coupling_form
        return tuple(
            (form.pair(*views) if len(views) == 2 else torch.cat([slab for _, slab in form.rows()], 1)).clone()
            for views in view_sets
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        solution, problem = ctx.solution, ctx.solution.problem
        terms = {views: grad for views, grad in zip(ctx.view_sets, grads) if grad is not None}
        if not terms:
            return (None,) * (2 + len(problem.tensors))
        with full_precision(problem.device):
            response = response_of(problem, solution.epsilon, solution.flat_potentials, list(terms))
            wide = {views: grad.to(response.potentials.dtype) for views, grad in terms.items()}
            gradients = response.problem.gradient(response.change(wide))
            return (None, None, *(grad.to(problem.dtype) for grad in gradients))
