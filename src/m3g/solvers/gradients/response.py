"""Derivative of the optimal coupling with respect to the cost.

The optimal coupling is P = exp((⊕f - C) / eps) with potentials f. If the cost changes by dC, the potentials change by
v, so that the one-view marginals of P stay the same:

    dP = P ∘ (⊕v - dC) / eps,      H v = m(P ∘ dC)

where m denotes the k one-view marginals and H the Newton matrix of the dual, with blocks diag(m_l) on the diagonal and
the pair marginals P_lm elsewhere. dP is a signed tensor whose one-view marginals vanish. A pairwise cost requires only
the pair marginals of dP, which follow from those of P ∘ dC and of P ∘ ⊕v (weighted.py).

All quantities are recomputed from the potentials, in float64 if the device supports it. In float32, rounding may make H
indefinite, so that its Cholesky factorisation fails.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from m3g.costs import Coupling, PairwiseProblem, Problem, all_edges, along, block_matrix
from m3g.costs.coupling import Edge, PairCoupling, TensorCoupling, sum_onto
from m3g.costs.problem import vector_dtype
from m3g.solvers.gradients.weighted import WeightedComplete, WeightedGraph

# Number added to the diagonal of H after H is scaled to a diagonal of 1. It is increased up to `MAX_RIDGE` if rounding
# makes the factorisation fail.
RIDGE = 1e-14
MAX_RIDGE = 1e-7

Terms = dict[tuple[int, ...], Tensor]


class Response:
    """Coupling at potentials (b, N), and its derivative with respect to the cost.

    The problem's tensors must have the dtype of the potentials.
    """

    coupling: Coupling

    def __init__(self, problem: Problem, epsilon: float, potentials: Tensor):
        self.problem, self.epsilon, self.potentials = problem, epsilon, potentials

    def change(self, terms: Terms) -> Coupling:
        """Return dP for dC = Σ terms, each of which depends on some views only: {views: (b, n, …)}."""
        raise NotImplementedError

    def _potential_changes(self, right: Sequence[Tensor]) -> list[Tensor]:
        """Return v with H v = right; v and `right` have one tensor (b, n_l) per view."""
        sizes = list(self.problem.sizes)
        pairs = {edge: self.coupling.pair(*edge) for edge in all_edges(len(sizes))}
        marginals = torch.cat([self.coupling.marginal(l) for l in range(len(sizes))], 1)
        return list(solve_singular(pairs, marginals, torch.cat(list(right), 1), sizes).split(sizes, 1))


def response_of(problem: Problem, epsilon: float, potentials: Tensor, terms: Sequence[tuple[int, ...]]) -> Response:
    """Return the response to changes of the cost that are a sum of one term for each set of views in `terms`."""
    wide = vector_dtype(problem.device)
    problem = problem.with_tensors([tensor.detach().to(wide) for tensor in problem.tensors])
    potentials = potentials.detach().to(wide)
    if problem.by_pairs and all(len(views) == 2 for views in terms):
        assert isinstance(problem, PairwiseProblem)
        return PairResponse(problem, epsilon, potentials, terms)  # type: ignore[arg-type]
    return TensorResponse(problem, epsilon, potentials)


class TensorResponse(Response):
    """Response computed from the full tensor of n^k entries, for any cost."""

    def __init__(self, problem: Problem, epsilon: float, potentials: Tensor):
        super().__init__(problem, epsilon, potentials)
        exponent = -problem.dense()
        for l, part in enumerate(potentials.split(list(problem.sizes), 1)):
            exponent = exponent + along(part, (l,), problem.k)
        self.tensor = (exponent / epsilon).exp()
        self.coupling = TensorCoupling(self.tensor)

    def change(self, terms: Terms) -> TensorCoupling:
        k = self.problem.k
        weighted = self.tensor * sum(along(term, views, k) for views, term in terms.items())
        potential_changes = self._potential_changes([sum_onto(weighted, (l,)) for l in range(k)])
        for l, part in enumerate(potential_changes):
            weighted = weighted - self.tensor * along(part, (l,), k)
        return TensorCoupling(weighted / -self.epsilon)


class PairResponse(Response):
    """Response computed by contractions of pair kernels, without a tensor of n^k entries."""

    def __init__(self, problem: PairwiseProblem, epsilon: float, potentials: Tensor, terms: Sequence[Edge]):
        super().__init__(problem, epsilon, potentials)
        sizes, k = problem.sizes, problem.k
        logs = edge_logs(problem, epsilon, potentials)
        # A term may depend on a pair of views without a cost, whose kernel is 1.
        for l, m in terms:
            if (l, m) not in logs:
                logs[l, m] = potentials.new_zeros(problem.num_batch, sizes[l], sizes[m])
        complete = len(logs) == len(all_edges(k))
        kernels = {edge: log.exp() for edge, log in logs.items()}
        self.weighted = (WeightedComplete if complete else WeightedGraph)(kernels, sizes)
        pairs = self.weighted.pairs()
        self.coupling = PairCoupling(pairs, marginals_of(pairs, k), sizes)

    def change(self, terms: Terms) -> PairCoupling:
        k, sizes = self.problem.k, self.problem.sizes
        cost_pairs = self.weighted(terms)  # type: ignore[arg-type]
        potential_changes = self._potential_changes(marginals_of(cost_pairs, k))
        # ⊕v as matrices on edges: each v_l is added to the matrix of one edge of view l.
        directions: dict[Edge, Tensor] = {}
        for l, part in enumerate(potential_changes):
            edge = next(edge for edge in cost_pairs if l in edge)
            shaped = part.unsqueeze(-1 if edge[0] == l else -2).expand_as(cost_pairs[edge])
            directions[edge] = directions[edge] + shaped if edge in directions else shaped
        potential_pairs = self.weighted(directions)
        signed = {edge: (potential_pairs[edge] - cost_pairs[edge]) / self.epsilon for edge in cost_pairs}
        return PairCoupling(signed, marginals_of(signed, k), sizes)


def marginals_of(pairs: dict[Edge, Tensor], k: int) -> list[Tensor]:
    """Return the one-view marginals, each from the first pair that contains the view."""
    out = []
    for l in range(k):
        edge = next(edge for edge in pairs if l in edge)
        out.append(pairs[edge].sum(-1 if edge[0] == l else -2))
    return out


def edge_logs(problem: PairwiseProblem, epsilon: float, potentials: Tensor) -> dict[Edge, Tensor]:
    """Return matrices {edge: (b, n_l, n_m)} whose sum is log P; each potential is divided among the edges of its view.

    A view without an edge gets an edge of cost 0.
    """
    exponents = problem.log_kernels(epsilon, potentials.dtype)
    logs = problem.by_edge(exponents.groups)
    for l in range(problem.k):
        if not any(l in edge for edge in logs):
            edge = (0, l) if l > 0 else (0, 1)
            logs[edge] = potentials.new_zeros(problem.num_batch, problem.sizes[edge[0]], problem.sizes[edge[1]])
    shifted = potentials if exponents.shift is None else potentials - exponents.shift
    scalings = (shifted / epsilon).split(list(problem.sizes), 1)
    per_edge = [part / sum(l in edge for edge in logs) for l, part in enumerate(scalings)]
    return {(l, m): log + per_edge[l].unsqueeze(-1) + per_edge[m].unsqueeze(-2) for (l, m), log in logs.items()}


def solve_singular(pairs: dict[Edge, Tensor], marginals: Tensor, right: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return x (b, N) with H x = right, for a right-hand side with the same sum in every view.

    The null space of H has dimension k - 1. It is spanned by vectors that add a constant in one view and subtract it in
    another. Adding Σ_{l > 0} m_l m_lᵀ makes the matrix invertible. The result still solves H x = right: it is the
    solution with ⟨m_l, x_l⟩ = 0 for l > 0.
    """
    root = marginals.clamp_min(torch.finfo(marginals.dtype).tiny).sqrt()
    matrix = block_matrix(pairs, marginals, sizes) / (root.unsqueeze(1) * root.unsqueeze(2))
    for l in range(1, len(sizes)):
        view = slice(sum(sizes[:l]), sum(sizes[: l + 1]))
        matrix[:, view, view] += root[:, view].unsqueeze(1) * root[:, view].unsqueeze(2)
    ridge = RIDGE
    while ridge <= MAX_RIDGE:
        matrix.diagonal(dim1=1, dim2=2).add_(ridge)
        factor, info = torch.linalg.cholesky_ex(matrix)
        if not bool(info.any()):
            return torch.cholesky_solve((right / root).unsqueeze(-1), factor).squeeze(-1) / root
        ridge *= 100
    raise FloatingPointError(
        "the derivative of the coupling could not be computed, because its linear system is singular: "
        "use a larger epsilon, or a smaller tol."
    )
