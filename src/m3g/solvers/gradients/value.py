"""The gradient of the entropic cost: d OT_eps / dC = P*, so nothing is differentiated through the solver."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from m3g.costs import Problem
from m3g.solvers.solution import Solution


class _EntropicCost(torch.autograd.Function):
    """Danskin's theorem: at the optimum only the explicit dependence on the cost matters."""

    @staticmethod
    def forward(ctx: Any, problem: Problem, solution: Solution, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*problem.gradient(solution.coupling_form))
        return solution.value.reshape(-1).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (
            saved * grad.reshape([-1] + [1] * (saved.ndim - 1)) if needed else None
            for saved, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[2:])
        )
        return (None, None, *scaled)


def differentiable_value(solution: Solution) -> Tensor:
    """OT_eps (b,) of a solution with its gradient with respect to the problem's tensors."""
    tensors = solution.problem.tensors
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
        return solution.value.reshape(-1)
    return _EntropicCost.apply(solution.problem, solution, *tensors)
