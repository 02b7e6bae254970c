"""Couplings as differentiable objects: marginals of P* with their gradient, by the implicit function theorem.

P = exp((⊕f - C) / eps) keeps its one-view marginals when the cost moves, so the potentials must follow:
H δf = m(P ∘ δC), where m takes the k one-view marginals and H is the Newton system of the dual (newton.py). For a
function L of marginals of P, with Ĝ the tensor that broadcasts and adds up its derivatives, this gives

    dL/dC = Q = P ∘ (⊕v - Ĝ) / eps,      H v = m(P ∘ Ĝ)

a signed tensor whose one-view marginals vanish; `Problem.gradient` takes it like a coupling. For a cost by pairs
only the pair marginals of P ∘ Ĝ and P ∘ ⊕v are needed (weighted.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from m3g.costs import Coupling, PairwiseProblem, all_edges, along
from m3g.costs.coupling import Edge
from m3g.solvers.gradients.weighted import WeightedComplete, WeightedGraph
from m3g.solvers.shared.newton import solve_newton
from m3g.solvers.shared.precision import SINGLE_RANGE, full_precision, vector_dtype

if TYPE_CHECKING:
    from m3g.solvers.solution import Solution

RESIDUAL = 1e-6


def differentiable_marginals(solution: Solution, kept: Sequence[tuple[int, ...]]) -> tuple[Tensor, ...]:
    """Marginals of the coupling on the given views, each (b, n, …), with their gradient to the problem's tensors.

    Ask for all that one loss needs in one call: they share the backward pass.
    """
    if solution.solver in ("linear-program", "sampled"):
        # An exact coupling moves in jumps; that of a sample is no function of its potentials and the cost alone.
        raise ValueError(f"solver must be 'factored' or 'sinkhorn' with differentiable=True, got {solution.solver!r}.")
    return _Marginals.apply(solution, tuple(kept), *solution.problem.tensors)


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
        problem = ctx.solution.problem
        given = {views: grad for views, grad in zip(ctx.kept, grads) if grad is not None}
        if not given:
            return (None,) * (2 + len(problem.tensors))
        with full_precision(problem.device):
            by_pairs = isinstance(problem, PairwiseProblem) and all(len(views) == 2 for views in given)
            signed = (_by_pairs if by_pairs else _dense)(ctx.solution, given)
            return (None, None, *problem.gradient(signed))


@dataclass
class SignedPairs(Coupling):
    """Q by its pair marginals; see `m3g.costs.Coupling`."""

    pairs: dict[Edge, Tensor]
    marginals: list[Tensor]
    sizes: Sequence[int]

    def marginal(self, l: int) -> Tensor:
        return self.marginals[l]

    def pair(self, l: int, m: int) -> Tensor:
        return self.pairs[l, m]

    def rows(self) -> Iterator[tuple[slice, Tensor]]:
        raise AssertionError("a cost by pairs has no use for the full tensor")


@dataclass
class SignedTensor(Coupling):
    """Q as the full tensor (b, n_1, …, n_k); see `m3g.costs.Coupling`."""

    tensor: Tensor

    @property
    def sizes(self) -> Sequence[int]:  # type: ignore[override]
        return self.tensor.shape[1:]

    def marginal(self, l: int) -> Tensor:
        return sum_onto(self.tensor, (l,))

    def pair(self, l: int, m: int) -> Tensor:
        return sum_onto(self.tensor, (l, m))

    def rows(self) -> Iterator[tuple[slice, Tensor]]:
        yield slice(0, self.tensor.shape[1]), self.tensor


def sum_onto(tensor: Tensor, kept: Sequence[int]) -> Tensor:
    """The marginal of (b, n_1, …, n_k) on some views."""
    gone = [l + 1 for l in range(tensor.ndim - 1) if l not in kept]
    return tensor.sum(gone) if gone else tensor


def _response(solution: Solution, right: Sequence[Tensor]) -> list[Tensor]:
    """v, one tensor (b, n_l) per view, with H v = right."""
    problem, form = solution.problem, solution.coupling_form
    dtype = right[0].dtype
    pairs = {edge: form.pair(*edge).to(dtype) for edge in all_edges(problem.k)}
    marginals = torch.cat([form.marginal(l).to(dtype) for l in range(problem.k)], 1)
    found = solve_newton(pairs, marginals, torch.cat(list(right), 1), problem.sizes, rtol=RESIDUAL)
    return [part.to(dtype) for part in found.split(list(problem.sizes), 1)]


def _dense(solution: Solution, given: dict[tuple[int, ...], Tensor]) -> SignedTensor:
    k = solution.problem.k
    coupling = torch.cat([slab for _, slab in solution.coupling_form.rows()], 1)
    weighted = coupling * sum(along(grad, views, k) for views, grad in given.items())
    response = _response(solution, [sum_onto(weighted, (l,)) for l in range(k)])
    for l, part in enumerate(response):
        weighted -= coupling * along(part, (l,), k)
    return SignedTensor(weighted.div_(-solution.epsilon))


def _by_pairs(solution: Solution, given: dict[tuple[int, ...], Tensor]) -> SignedPairs:
    problem, epsilon = solution.problem, solution.epsilon
    assert isinstance(problem, PairwiseProblem)
    logs = log_kernels(solution)
    dtype = logs[problem.edges[0]].dtype
    kernels = {edge: log.exp_() for edge, log in logs.items()}
    given = {edge: grad.to(dtype) for edge, grad in given.items()}
    # A pair without a cost of its own, whose marginal is used, enters with a kernel of ones.
    kernels |= {edge: torch.ones_like(grad) for edge, grad in given.items() if edge not in kernels}  # type: ignore
    complete = len(kernels) == len(all_edges(problem.k))
    weighted = (WeightedComplete if complete else WeightedGraph)(kernels, problem.sizes)

    outer = weighted(given)  # type: ignore[arg-type]
    response = _response(solution, _marginals_of(outer, problem.k))
    lifted: dict[Edge, Tensor] = {}
    for l, part in enumerate(response):
        edge = next(edge for edge in problem.edges if l in edge)
        shaped = part.unsqueeze(-1 if edge[0] == l else -2).expand_as(kernels[edge])
        lifted[edge] = lifted[edge] + shaped if edge in lifted else shaped
    inner = weighted(lifted)
    signed = {edge: ((inner[edge] - outer[edge]) / epsilon).to(problem.dtype) for edge in problem.edges}
    return SignedPairs(signed, _marginals_of(signed, problem.k), problem.sizes)


def _marginals_of(pairs: dict[Edge, Tensor], k: int) -> list[Tensor]:
    """The one-view marginals, each from the first pair that has the view."""
    out = []
    for l in range(k):
        edge = next(edge for edge in pairs if l in edge)
        out.append(pairs[edge].sum(-1 if edge[0] == l else -2))
    return out


def log_kernels(solution: Solution) -> dict[Edge, Tensor]:
    """Matrices whose sum over the edges is log P: each potential is shared out among the edges of its view."""
    problem, epsilon = solution.problem, solution.epsilon
    assert isinstance(problem, PairwiseProblem)
    wide = vector_dtype(problem.device)
    exponents = problem.log_kernels(epsilon, wide)
    matrices = [matrix for group in exponents.groups for matrix in group.unbind(1)]
    scalings = (solution.flat_potentials.to(wide) / epsilon - exponents.shift).split(list(problem.sizes), 1)
    shares = [part / sum(l in edge for edge in problem.edges) for l, part in enumerate(scalings)]
    logs = {
        (l, m): matrix + shares[l].unsqueeze(-1) + shares[m].unsqueeze(-2)
        for (l, m), matrix in zip(problem.edges, matrices)
    }
    # Products over the edges must stay in range on the way to entries of P, which are at most 1.
    reach = float(torch.stack([log.amax((-2, -1)).clamp(min=0) for log in logs.values()]).sum(0).max())
    dtype = problem.dtype if reach < SINGLE_RANGE / 2 else wide
    return {edge: log.detach().to(dtype) for edge, log in logs.items()}
