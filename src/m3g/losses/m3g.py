"""The multi-marginal matching gap: the regularised cost of the true matching minus that of the best polymatching."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from m3g import _checks
from m3g._checks import Views
from m3g.costs import Cost, CostLike, as_cost
from m3g.losses.base import ViewLoss
from m3g.losses.convergence import SolveReport, raise_or_warn
from m3g.losses.entropy import Entropy
from m3g.losses.gather import distributed, shared_seed
from m3g.losses.missing import imputed
from m3g.solvers import Solver, SolverLike, as_solver
from m3g.solvers.gradients.value import differentiable_value
from m3g.solvers.sharded import Sharded
from m3g.solvers.solution import Solution

P = ParamSpec("P")
R = TypeVar("R")
GRAPH_BREAK_REASON = "the host reads the solver's error; use m3g.Factored(fixed_steps=...), which causes no graph break"


def _untraced(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function excluded from tracing, with a reason if this version of torch accepts one."""
    if "reason" in inspect.signature(torch.compiler.disable).parameters:
        return cast("Callable[P, R]", torch.compiler.disable(function, reason=GRAPH_BREAK_REASON))
    return cast("Callable[P, R]", torch.compiler.disable(function))


@functools.cache
def _exclude_from_tracing() -> None:
    """Exclude `M3GLoss._outside_graph` from tracing; not on import, because `torch.compiler` is slow to import."""
    M3GLoss._outside_graph = _untraced(M3GLoss._outside_graph)  # type: ignore[method-assign]


def matching_gap(
    views: Views,
    *,
    epsilon: float | None = None,
    temperature: float | None = None,
    cost: CostLike = "cv",
    solver: SolverLike = "auto",
    tol: float = 1e-3,
    mask: Tensor | None = None,
    normalize: bool = True,
) -> Tensor:
    r"""Multi-marginal matching gap of k aligned views (Eq. 14 of the paper).

    .. math::
        \mathrm{M3G}(X) = h(J, C) - \min_P h(P, C), \qquad
        h(P, C) = \langle P, C\rangle + \varepsilon \langle P, \log P - 1\rangle

    where :math:`C` contains the costs of all :math:`n^k` tuples, the true matching :math:`J` has mass 1/n on each true
    tuple, and the minimum is over all couplings :math:`P` of the k views. The gap is non-negative, and zero only if the
    true matching is optimal. Its gradient with respect to the cost is :math:`J - P^\star` (Proposition 3.2 of the
    paper), so the iterations of the solver are not differentiated.

    Args:
        views: (..., k, n, d), or a sequence of k tensors (..., n, d).
        epsilon: weight of the entropy in units of the cost, > 0 (must be 0 with solver="linear-program").
        temperature: the same weight in units of InfoNCE: epsilon / `Cost.slope(k)`, which is epsilon k² / (2 (k - 1))
            for "cv". Set at most one of the two; the default is a temperature of 0.1, or an epsilon of 0.05 for a cost
            without a slope.
        cost: "cv" (circular variance), "cv-algorithm2", "csd", "product", "sqeuclidean", "cosine", "coulomb",
            a sum of these such as "0.5*cv[:16] + product[16:]", a cost object, or a function of k broadcastable tensors
            (..., d).
        solver: "auto", "factored", "dense", "sampled", "sinkhorn", "linear-program", or a configured solver.
        tol: marginal error Σ_l |m_l(P) - 1/n|_1 at which the solver stops.
        mask: bool (k, n) or (..., k, n), False for missing points. They are replaced by the mean of the present views
            of their object, without gradient. `PairwiseCost` documents the exceptions, under `neutral`.
        normalize: scale every vector to unit length first.

    Returns:
        A scalar, or one value per batch element (...).

    Complexity: O(k² n² d) for the costs of pairs of points, or O(n^k d) for the cost tensor of "product" or a function;
    then O(s n^k) for s steps of an exact solver, usually fewer than 10 at the default temperature. "sampled" of rank R,
    which "auto" uses for the largest problems, takes O(s k n d R). `m3g.workload` predicts operations and memory.

    Example:
        >>> import torch, m3g
        >>> _ = torch.manual_seed(0)
        >>> views = torch.randn(3, 64, 128, requires_grad=True)
        >>> gap = m3g.matching_gap(views, epsilon=0.05)
        >>> gap.backward()
        >>> round(gap.item(), 3), tuple(views.grad.shape)
        (0.43, (3, 64, 128))

    Reference: Piran et al., ICML 2024 :cite:`piran2024`.
    """
    loss = M3GLoss(epsilon, temperature=temperature, cost=cost, solver=solver, tol=tol, normalize=normalize)
    return loss(views, mask=mask)


def solved_gap(
    points: Tensor, mask: Tensor | None, *, epsilon: float, cost: Cost, solver: Solver, tol: float, unit: bool = False
) -> tuple[Tensor, Solution]:
    """Return the gap of validated views (..., k, n, d) and the solution; set `unit` if all points have length 1.

    With a mask, missing points must have been imputed.
    """
    problem = cost(points, unit=unit) if mask is None else cost.of_imputed(points, mask)
    epsilon = _checks.in_range_of(problem.dtype, epsilon)
    solution = solver.solve(problem, epsilon=epsilon, tol=tol, weights=None)
    matched, n = problem.matched(), problem.sizes[0]
    # math.log would make n a constant of the traced graph.
    log_n = matched.new_full((), n).log() if torch.compiler.is_compiling() else math.log(n)
    # Subtract before the reshape: with shape (), forward mode would promote float32 to float64.
    true_cost = (matched - epsilon * (log_n + 1)).reshape(problem.batch)  # h(J, C)
    best_cost = differentiable_value(solution)  # min_P h(P, C)
    gap = true_cost - best_cost
    # Rounding or sampling may make the gap negative. Only the value is clamped: the gradient remains J - P*.
    return gap - gap.detach().clamp(max=0.0), solution


def leave_one_out(student: Tensor, teacher: Tensor) -> Tensor:
    """Return k copies of the student's views; in copy l, the teacher's view replaces view l.

    Both arguments have shape (..., k, n, d), the result (..., k, k, n, d).

    Example:
        >>> import torch
        >>> mixed = leave_one_out(torch.zeros(3, 4, 2), torch.ones(3, 4, 2))
        >>> mixed[:, :, 0, 0]
        tensor([[1., 0., 0.],
                [0., 1., 0.],
                [0., 0., 1.]])
    """
    _checks.same_shape(student, teacher)
    from_teacher = torch.eye(student.shape[-3], dtype=torch.bool, device=student.device)[..., None, None]
    return torch.where(from_teacher, teacher.detach().unsqueeze(-4), student.unsqueeze(-4))


class M3GLoss(ViewLoss):
    r"""Multi-marginal matching gap loss (Eq. 14 of the paper): `loss(views, *, mask=None, teacher=None)`.

    .. math:: \mathrm{M3G}(X) = h(J, C) - \min_P h(P, C), \qquad
        h(P, C) = \langle P, C\rangle + \varepsilon \langle P, \log P - 1\rangle

    `matching_gap` explains the symbols. With a teacher, the loss is the mean of k gaps, which are solved as one batch.
    In gap l, the teacher's view :math:`T_l`, which receives no gradient, replaces the student's view :math:`X_l`:

    .. math:: \frac1k \sum_l \mathrm{M3G}(X_1, \dots, X_{l-1}, T_l, X_{l+1}, \dots, X_k)

    Shapes: `views` and `teacher` (..., k, n, d) or k tensors (..., n, d), `mask` (k, n) or (..., k, n), result (...).

    Complexity: that of `matching_gap`, and k times as much with a teacher.

    Args:
        epsilon, temperature: weight of the entropy, as in `matching_gap`.
        final_epsilon, final_temperature: value at the end of training, on a geometric schedule. `m3g train` sets the
            progress; a custom loop calls `loss.set_progress(step / (num_steps - 1))`. None keeps the first value.
        cost, solver, tol: as in `matching_gap`. A solver may also be a mapping such as `{"name": "sampled", "rank":
            8192}`, as in a settings file.
        normalize, gather: as in `ViewLoss`.
        gather_dtype: "bfloat16" sends the points to other processes with 2 bytes per number; None keeps their dtype.
        shard: whether to divide a solve among the processes if `gather` is set. None divides solves of at least 1e10
            operations per step; for smaller ones, communication takes longer than it saves. Value and gradient are the
            same up to rounding. A solve with `fixed_steps` is never divided.

    Attributes:
        last: `SolveReport` of the last solve (steps, epsilon, error); None before the first solve.

    Example:
        >>> import torch, m3g
        >>> _ = torch.manual_seed(0)
        >>> loss = m3g.M3GLoss(epsilon=0.05)
        >>> student, teacher = torch.randn(2, 4, 16, 8)
        >>> loss(student, teacher=teacher).shape
        torch.Size([])
        >>> loss.last.num_steps < 10
        True

    Reference: Piran et al., ICML 2024 :cite:`piran2024`.
    """

    takes_teacher = True
    takes_batches = True

    @property
    def reads_values(self) -> bool:
        return self.solver.fixed_steps is None

    @property
    def visits_all_tuples(self) -> bool:
        return self.solver.exact

    def __init__(
        self,
        epsilon: float | None = None,
        *,
        temperature: float | None = None,
        final_epsilon: float | None = None,
        final_temperature: float | None = None,
        cost: CostLike = "cv",
        solver: SolverLike = "auto",
        tol: float = 1e-3,
        normalize: bool = True,
        gather: bool = False,
        gather_dtype: str | None = None,
        shard: bool | None = None,
    ) -> None:
        _exclude_from_tracing()
        super().__init__(normalize=normalize, gather=gather)
        if gather_dtype is not None:
            _checks.one_of("gather_dtype", gather_dtype, ("bfloat16",))
            self.gather_dtype = torch.bfloat16
        self.shard = shard if shard is None else _checks.flag("shard", shard)
        self.solver = as_solver(solver)
        if epsilon is not None:
            epsilon = self.solver.check_epsilon(epsilon)
        self.entropy = Entropy(epsilon, temperature, final_epsilon, final_temperature)
        if epsilon is None:
            self.solver.check_epsilon(self.entropy.value)
        self.cost = as_cost(cost)
        self.tol = _checks.positive("tol", tol)
        self.last: SolveReport | None = None

    @property
    def readout(self) -> Cost | None:
        return self.cost if self.cost.joint else None

    @property
    def scheduled(self) -> bool:
        return self.entropy.scheduled

    def set_progress(self, progress: float) -> None:
        self.entropy.set_progress(progress)

    @property
    def epsilon(self) -> float | None:
        """The current epsilon; None if it follows from a temperature and depends on k (see `last.epsilon`)."""
        return self.entropy.value if self.entropy.in_epsilon else None

    @property
    def temperature(self) -> float | None:
        """The current temperature; None if epsilon was given. The default has no effect on costs without a slope."""
        return None if self.entropy.in_epsilon else self.entropy.value

    def forward(self, views: Views, *, mask: Tensor | None = None, teacher: Views | None = None) -> Tensor:
        if self.reads_values and torch.compiler.is_compiling():
            if not torch.compiler.is_dynamo_compiling():
                raise ValueError(
                    f"solver must have fixed_steps under torch.export, got {self.solver!r}: {GRAPH_BREAK_REASON}."
                )
            # One graph break before the loss instead of many inside it.
            return self._outside_graph(views, mask, teacher)
        return super().forward(views, mask=mask, teacher=teacher)

    def _outside_graph(self, views: Views, mask: Tensor | None, teacher: Views | None) -> Tensor:
        return super().forward(views, mask=mask, teacher=teacher)

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        if teacher is not None:
            views = leave_one_out(views, teacher)
            mask = mask if mask is None else mask.unsqueeze(-3).expand(views.shape[:-1])
        solver = self.solver
        if solver.fixed_steps is None:
            _checks.not_vmapped("views", views)
        points = _checks.masked_and_scaled(views, mask, normalize=self.normalize, check_entries=False)
        if mask is not None:
            points = imputed(points, mask)
        if self.gather and distributed():
            # All processes must draw the same samples.
            solver = solver.with_seed(lambda generator: shared_seed(generator, device=views.device))
            if self.shard is not False:
                solver = Sharded(solver, min_flops=0.0) if self.shard else Sharded(solver)
        unit = self.normalize and mask is None
        epsilon = self.entropy.epsilon_of(self.cost, points.shape[-3])
        gap, solution = solved_gap(
            points, mask, epsilon=epsilon, cost=self.cost, solver=solver, tol=self.tol, unit=unit
        )
        self.last = SolveReport.from_solution(solution)
        if self.reads_values and not solution.converged:  # with fixed_steps, the host must not read the error
            # Entries are validated only after a failure, because validation reads all of them.
            _checks.masked_and_scaled(views, mask, normalize=self.normalize)
            raise_or_warn(solution)
        value = self.value(gap, solution)
        return value if teacher is None else value.mean(-1)

    def value(self, gap: Tensor, solution: Solution) -> Tensor:
        """Return the value of the loss from a solve: the gap. Subclasses may use the coupling instead."""
        return gap

    def report(self, value: Tensor) -> dict[str, float]:
        """Return the gap, the solver steps and epsilon."""
        return {"gap": float(value.detach()), **self._solve_metrics()}

    def _solve_metrics(self) -> dict[str, float]:
        return {"solver_steps": float(self.last.num_steps), "epsilon": self.last.epsilon} if self.last else {}

    def extra_repr(self) -> str:
        return f"{self.entropy!r}, cost={self.cost!r}, solver={self.solver!r}, tol={self.tol}"
