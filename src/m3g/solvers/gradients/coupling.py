"""Differentiable marginals of P*, by the implicit function theorem.

For a function L of marginals of P, with Ĝ the broadcast sum of its derivatives,

    dL/dC = P ∘ (⊕v - Ĝ) / eps,      H v = m(P ∘ Ĝ)

which is the response of P to a change Ĝ of the cost (response.py); `Problem.gradient` accepts it like a coupling.
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


def differentiable_marginals(solution: Solution, kept: Sequence[tuple[int, ...]]) -> tuple[Tensor, ...]:
    """Return marginals of the coupling on the given views, each (b, n, …), differentiable in the problem's tensors.

    Request all marginals of a loss in one call, so that they share the backward pass.
    """
    if not solution.coupling_form.from_potentials:
        raise ValueError(
            f"solver must be 'factored', 'dense' or 'sinkhorn' with differentiable=True, got {solution.solver!r}."
        )
    marginals: tuple[Tensor, ...] = _Marginals.apply(solution, tuple(kept), *solution.problem.tensors)  # type: ignore[no-untyped-call]
    return marginals


class _Marginals(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, solution: Solution, kept: tuple[tuple[int, ...], ...], *tensors: Tensor) -> Any:
        ctx.solution, ctx.kept = solution, kept
        ctx.set_materialize_grads(False)
        form = solution.coupling_form
        return tuple(
            (form.pair(*views) if len(views) == 2 else torch.cat([slab for _, slab in form.rows()], 1)).clone()
            for views in kept
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        solution, problem = ctx.solution, ctx.solution.problem
        given = {views: grad for views, grad in zip(ctx.kept, grads) if grad is not None}
        if not given:
            return (None,) * (2 + len(problem.tensors))
        with full_precision(problem.device):
            response = response_of(problem, solution.epsilon, solution.flat_potentials, list(given))
            wide = {views: grad.to(response.potentials.dtype) for views, grad in given.items()}
            gradients = response.problem.gradient(response.change(wide))
            return (None, None, *(grad.to(problem.dtype) for grad in gradients))
