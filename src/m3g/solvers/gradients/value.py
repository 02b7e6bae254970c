"""Derivatives of the entropic cost OT_eps with respect to the tensors of the problem.

By Danskin's theorem, the derivative with respect to the cost is the optimal coupling P, so the iterations of the solver
are not differentiated:

    d OT_eps = ⟨P, dC⟩,      d² OT_eps = ⟨P, d²C⟩ + ⟨dP, dC⟩

The change dP of the coupling follows from the implicit function theorem (response.py). The value, the gradient and the
second derivative are separate autograd functions, so that each order is computed only if required, in backward or in
forward mode. All tensors are arguments of these functions, as `torch.func` requires.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from m3g.costs import Problem
from m3g.solvers.gradients.response import response_of
from m3g.solvers.shared.precision import full_precision
from m3g.solvers.solution import Solution


def differentiable_value(solution: Solution) -> Tensor:
    """Return `value` of a solution, differentiable with respect to the problem's tensors."""
    problem = solution.problem
    if torch.compiler.is_compiling():
        return _linear_value(solution).reshape(problem.batch)
    if not any(_is_differentiated(tensor) for tensor in problem.tensors):
        return solution.value
    gradients = _gradients(solution)
    settings = _Settings(problem, solution.epsilon, solution.solver, solution.coupling_form.from_potentials)
    value = solution.value.reshape(-1)
    differentiable: Tensor = _Value.apply(settings, value, solution.flat_potentials, *gradients, *problem.tensors)  # type: ignore[no-untyped-call]
    return differentiable.reshape(problem.batch)


def _linear_value(solution: Solution) -> Tensor:
    """Return the value with its first derivative only, by tensor operations that can be traced.

    Second derivatives are not required here, because compiled code does not compute them.
    """
    value = solution.value.detach().reshape(-1)
    for tensor, gradient in zip(solution.problem.tensors, _gradients(solution)):
        if tensor.requires_grad:
            value = value + (gradient * (tensor - tensor.detach())).flatten(1).sum(1)
    return value


def _gradients(solution: Solution) -> tuple[Tensor, ...]:
    if solution.gradients is not None:
        return solution.gradients
    with torch.no_grad():
        return solution.problem.detached().gradient(solution.coupling_form)


def _is_differentiated(tensor: Tensor) -> bool:
    """Return whether a derivative with respect to a tensor may be required, in backward or forward mode."""
    if torch.is_grad_enabled() and tensor.requires_grad:
        return True
    return forward_ad.unpack_dual(tensor).tangent is not None or torch._C._functorch.is_functorch_wrapped_tensor(tensor)


@dataclass(frozen=True)
class _Settings:
    """Arguments of the autograd functions that are not tensors; the tensors of `problem` are passed separately."""

    problem: Problem
    epsilon: float
    solver: str
    from_potentials: bool

    def split(self, tensors: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Split into two sequences with one tensor for each tensor of the problem."""
        half = len(self.problem.tensors)
        return tuple(tensors[:half]), tuple(tensors[half:])

    def over_batch(self, value: Tensor, tensor: Tensor) -> Tensor:
        """Reshape one number per problem (b,) so that it broadcasts against one of the problem's tensors."""
        return value.to(tensor.dtype).reshape([-1] + [1] * (tensor.ndim - 1))

    def inner(self, first: Sequence[Tensor], second: Sequence[Tensor | None]) -> Tensor | None:
        """Return the inner product ⟨first, second⟩ per problem (b,); None if all entries of `second` are None."""
        b = self.problem.num_batch
        terms = [(x * y).reshape(b, -1).sum(1) for x, y in zip(first, second) if y is not None]
        return torch.stack(terms).sum(0) if terms else None


class _Value(torch.autograd.Function):
    """Map (value, potentials, gradients, tensors) to the value. Only the tensors have derivatives."""

    generate_vmap_rule = True

    @staticmethod
    def forward(settings: _Settings, value: Tensor, potentials: Tensor, *rest: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.settings = inputs[0]
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        _, potentials, *rest = ctx.saved_tensors
        # Call the autograd function only if the gradient may be differentiated again.
        call = _Gradient.apply if torch.is_grad_enabled() else _Gradient.forward
        gradients = call(ctx.settings, grad, potentials, *rest)
        return (None, None, None, *[None] * len(gradients), *gradients)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor | None:
        value, potentials, *rest = ctx.saved_tensors
        settings: _Settings = ctx.settings
        gradients = _Gradient.apply(settings, torch.ones_like(value), potentials, *rest)  # type: ignore[no-untyped-call]
        return settings.inner(gradients, tangents[-len(gradients) :])


class _Gradient(torch.autograd.Function):
    """Map (grad, potentials, gradients, tensors) to grad · gradients."""

    generate_vmap_rule = True

    @staticmethod
    def forward(settings: _Settings, grad: Tensor, potentials: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        return tuple(saved * settings.over_batch(grad, saved) for saved in settings.split(rest)[0])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.settings = inputs[0]
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        settings = ctx.settings
        grad, potentials, *rest = ctx.saved_tensors
        gradients, tensors = settings.split(rest)
        products = _SecondDerivative.apply(settings, potentials, *tensors, *grads)  # type: ignore[no-untyped-call]
        scaled = [each * settings.over_batch(grad, each) for each in products]
        grad_of_scale = settings.inner(gradients, grads)
        return (None, grad_of_scale, None, *[None] * len(gradients), *scaled)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        settings = ctx.settings
        grad, potentials, *rest = ctx.saved_tensors
        gradients, tensors = settings.split(rest)
        directions = [
            torch.zeros_like(tensor) if tangent is None else tangent
            for tensor, tangent in zip(tensors, tangents[-len(tensors) :])
        ]
        products = _SecondDerivative.apply(settings, potentials, *tensors, *directions)  # type: ignore[no-untyped-call]
        scaled = [each * settings.over_batch(grad, each) for each in products]
        if tangents[1] is None:
            return tuple(scaled)
        return tuple(each + saved * settings.over_batch(tangents[1], saved) for each, saved in zip(scaled, gradients))


class _SecondDerivative(torch.autograd.Function):
    """Map (potentials, tensors, directions) to the product of the second derivative of the value and the directions."""

    generate_vmap_rule = True

    @staticmethod
    def forward(settings: _Settings, potentials: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        if not settings.from_potentials:
            raise ValueError(
                f"solver must be 'factored', 'dense' or 'sinkhorn' for second derivatives, got {settings.solver!r}."
            )
        tensors, directions = settings.split(rest)
        with full_precision(potentials.device):
            problem = settings.problem.with_tensors(tensors)
            terms = list(_views_of_terms(problem))
            response = response_of(problem, settings.epsilon, potentials, terms)
            problem = response.problem
            wide = [direction.to(problem.dtype) for direction in directions]
            explicit = problem.gradient_change(response.coupling, wide)
            implicit = problem.gradient(response.change(problem.change(wide)))
            return tuple((x + y).to(tensors[0].dtype) for x, y in zip(explicit, implicit))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise NotImplementedError(
            "third derivatives of the entropic cost are not implemented: differentiate it at most twice."
        )

    jvp = backward


# Without a stored signature, `apply` inspects the function at every call, which takes a tenth of the time of a small
# solve.
for _function in (_Value, _Gradient, _SecondDerivative):
    _function.forward.__signature__ = inspect.signature(_function.forward)  # type: ignore[union-attr]


def _views_of_terms(problem: Problem) -> Sequence[tuple[int, ...]]:
    """Return the sets of views on which the terms of `Problem.change` depend."""
    return problem.edges if problem.by_pairs else [tuple(range(problem.k))]
