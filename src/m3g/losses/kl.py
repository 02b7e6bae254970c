r"""Inverse optimal transport loss: the KL divergence between the true matching J and the optimal coupling P.

For any potentials F = (f_1, …, f_k) and the coupling P = exp((⊕F - C) / eps) that they define,

    eps KL(J ‖ P) = h(J, C) - D(F),      KL(J ‖ P) = ⟨J, log J - log P⟩ - |J| + |P|

with h the regularised cost, D the dual function (Eq. 9 of the paper) and |P| the sum of all entries of P. At the
optimum, KL(J ‖ P*) is therefore the matching gap divided by epsilon. The dual is stationary there, so the potentials
contribute no gradient. The gradient with respect to the cost is (J - P*) / eps, the gradient of the gap divided by
epsilon.

For k > 2, the divergence of the pair marginals is a different loss, and the potentials contribute to its gradient.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from m3g._checks import Views, one_of
from m3g.costs import CostLike, all_edges
from m3g.losses.m3g import M3GLoss
from m3g.solvers import Solution, SolverLike
from m3g.solvers.gradients.coupling import differentiable_marginals

DIVERGENCES = ("tuples", "pairs")


def matching_divergence(
    views: Views,
    *,
    epsilon: float | None = None,
    temperature: float | None = None,
    of: str = "tuples",
    cost: CostLike = "cv",
    solver: SolverLike = "auto",
    tol: float = 1e-3,
    mask: Tensor | None = None,
    normalize: bool = True,
) -> Tensor:
    r"""KL divergence between the true matching J and the optimal coupling P, of whole tuples or of pairs of views.

    .. math::
        \text{tuples:}\quad \mathrm{KL}(J \,\|\, P) = \tfrac{1}{\varepsilon}\,\mathrm{M3G}
        \qquad
        \text{pairs:}\quad \frac{2}{k(k-1)} \sum_{l<m} \mathrm{KL}(I/n \,\|\, P_{lm})
        = -\log n - \frac{2}{k(k-1)} \sum_{l<m} \frac1n \sum_i \log P_{lm}[i, i]

    where M3G is the matching gap (Eq. 14 of the paper), :math:`P_{lm}` the pair marginal of views l and m, and I the
    identity matrix. The two divergences are equal for k = 2. For more views, the divergence of pairs is at most that of
    tuples, because marginalisation loses information. The gradient of the divergence of pairs follows from the implicit
    function theorem and requires the solution of one linear system, whose matrix is the Hessian of the dual up to a
    factor.

    Args:
        views: (..., k, n, d), or a sequence of k tensors (..., n, d).
        epsilon, temperature: weight of the entropy, as in `m3g.matching_gap`.
        of: "tuples" or "pairs".
        cost, solver, tol, mask, normalize: as in `m3g.matching_gap`. "pairs" requires a solve by "factored", "dense" or
            "sinkhorn", and its gradient has an error of the order of `tol`.

    Returns:
        A scalar, or one value per batch element (...).

    Complexity: that of `m3g.matching_gap`; "pairs" adds about two contractions over the n^k tuples to the backward pass
    and O(n^(k-1)) memory.

    Example:
        >>> views = torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(0))
        >>> matching_divergence(views, of="pairs") < matching_divergence(views, of="tuples")
        tensor(True)

    Reference: Shi et al., *Understanding and Generalizing Contrastive Learning from the Inverse Optimal Transport
    Perspective*, ICML 2023 :cite:`shi2023`, for k = 2.
    """
    loss = KLLoss(epsilon, temperature=temperature, of=of, cost=cost, solver=solver, tol=tol, normalize=normalize)
    return loss(views, mask=mask)


class KLLoss(M3GLoss):
    r"""KL divergence between the true matching J and the optimal coupling P: module form of `matching_divergence`.

    .. math::
        \text{tuples:}\quad \mathrm{KL}(J \,\|\, P) = \tfrac{1}{\varepsilon}\,\mathrm{M3G}
        \qquad
        \text{pairs:}\quad \frac{2}{k(k-1)} \sum_{l<m} \mathrm{KL}(I/n \,\|\, P_{lm})

    `matching_divergence` explains the symbols. The module is called like `M3GLoss`, optionally with a teacher.

    Args:
        of: "tuples" or "pairs", as in `matching_divergence`.
        epsilon, temperature, final_epsilon, final_temperature, cost, solver, tol, normalize, gather: as in `M3GLoss`.

    Shapes: `views` and `teacher` (..., k, n, d) or k tensors (..., n, d), `mask` (k, n) or (..., k, n), result (...).

    Complexity: that of `matching_divergence`, and k times as much with a teacher.

    Example:
        >>> import torch
        >>> from m3g.losses import KLLoss
        >>> loss = KLLoss(of="pairs")
        >>> loss(torch.randn(5, 3, 8, 4)).shape  # a batch of five problems
        torch.Size([5])

    Reference: Shi et al., ICML 2023 :cite:`shi2023`, for k = 2.
    """

    def __init__(
        self,
        epsilon: float | None = None,
        *,
        temperature: float | None = None,
        final_epsilon: float | None = None,
        final_temperature: float | None = None,
        of: str = "tuples",
        cost: CostLike = "cv",
        solver: SolverLike = "auto",
        tol: float = 1e-3,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        super().__init__(
            epsilon,
            temperature=temperature,
            final_epsilon=final_epsilon,
            final_temperature=final_temperature,
            cost=cost,
            solver=solver,
            tol=tol,
            normalize=normalize,
            gather=gather,
        )
        self.of = one_of("of", of, DIVERGENCES)
        if self.epsilon == 0:
            raise ValueError("epsilon must be a positive number for a divergence, got 0.")
        if self.of == "pairs" and not self.solver.exact:
            raise ValueError(
                f"solver must be 'auto', 'factored', 'dense' or 'sinkhorn' with of='pairs', got {self.solver!r}."
            )

    def value(self, gap: Tensor, solution: Solution) -> Tensor:
        return gap / solution.epsilon if self.of == "tuples" else pair_divergence(solution)

    def report(self, value: Tensor) -> dict[str, float]:
        """Return the solver steps and epsilon, without the gap, because this loss is a divergence."""
        return self._solve_metrics()

    def extra_repr(self) -> str:
        return f"of={self.of!r}, {super().extra_repr()}"


def pair_divergence(solution: Solution) -> Tensor:
    """Return the mean of KL(I/n ‖ P_lm) over the pairs of views, in the batch shape of the problem."""
    problem = solution.problem
    pair_marginals = torch.stack(differentiable_marginals(solution, all_edges(problem.k)))
    # Entries that underflow are clamped and have no gradient.
    smallest = torch.finfo(pair_marginals.dtype).tiny
    log_diagonals = pair_marginals.diagonal(dim1=-2, dim2=-1).clamp(min=smallest).log()
    return (-math.log(problem.sizes[0]) - log_diagonals.mean((0, -1))).reshape(problem.batch)
