"""Result of a solve."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Coupling, Problem, all_edges
from m3g.costs.coupling import Edge
from m3g.costs.problem import vector_dtype
from m3g.solvers.gradients.coupling import differentiable_marginals
from m3g.solvers.shared.couplings import RescaledCoupling
from m3g.solvers.shared.memory import memory_limit
from m3g.solvers.shared.solver import Result


@dataclass(frozen=True)
class Solution:
    r"""Result of `solve`: the value, the potentials and the coupling of lowest regularised cost.

    The coupling is determined by its potentials :math:`f_l` (Eq. 10 of the paper), except with solver="sampled" and
    "linear-program":

    .. math:: P = \exp\bigl((f_1 \oplus \dots \oplus f_k - C) / \varepsilon\bigr)

    Marginals and pair marginals are therefore available without the full tensor of :math:`n^k` entries.

    Attributes:
        problem: the solved problem.
        epsilon: weight of the entropy.
        value: OT_eps, the regularised cost ⟨P, C⟩ + eps ⟨P, log P - 1⟩ of the best polymatching, in the batch shape of
            the problem. It is computed as the dual value at the potentials (Eq. 9 of the paper), which is a lower bound
            before convergence. With solver="sampled", it is an estimate; with "linear-program", it is ⟨P, C⟩.
        flat_potentials: (b, N), the concatenated potentials of all views and all b problems. They may be float64 even
            if the costs are float32: if f and C are much larger than eps, rounding f to float32 would increase the
            error of the marginals.
        error: Σ_l |m_l(P) - a_l|_1, the distance of the marginals from the weights (batch shape); at most `tol` times
            `mass` if the solve converged.
        num_steps: number of sweeps and of evaluations of the dual in the Newton steps; 1 with solver="linear-program".
        tol: the requested tolerance, relative to the mass.
        solver: name of the solver.
        coupling_form: internal representation of the coupling.
        standard_error: standard error of `value`, and thus of the matching gap (batch shape), if the solver samples;
            otherwise None. It is infinite if a solve with `fixed_steps` is untrusted.
        relative_gradient_error: standard error of the gradient of the matching gap, divided by the norm of that
            gradient (batch shape), if the solver samples; otherwise None. The gradient is that with respect to the
            points, or to the cost matrices of a `PairwiseCost`.
        reason: how the solve ended, if the solver provides it; otherwise `result` infers it from `error` and
            `standard_error`.
        gradients: derivatives of `value` with respect to the problem's tensors, if the solver computed them.
        mass: sum of the weights of a view (batch shape).
        differentiable: whether `pair_marginal` and `coupling` are differentiable with respect to the problem's tensors.

    Complexity: `marginal` and `pair_marginal` usually take at most about as long as one step of the solver. For a large
    problem whose pairs of views with a cost form a tree, they may take O(k n³). `coupling` takes O(k² n^k) time and
    O(n^k) memory.

    Example:
        >>> import torch, m3g
        >>> solution = m3g.solve(1 - torch.eye(4), epsilon=0.1)
        >>> solution.converged, solution.pair_marginal(0, 1).shape, len(solution.potentials)
        (True, torch.Size([4, 4]), 2)

    References: Piran et al., ICML 2024 :cite:`piran2024`; Benamou et al., 2015 :cite:`benamou2015`.
    """

    problem: Problem
    epsilon: float
    value: Tensor
    flat_potentials: Tensor
    error: Tensor
    num_steps: int
    tol: float
    solver: str
    coupling_form: Coupling
    standard_error: Tensor | None = None
    relative_gradient_error: Tensor | None = None
    reason: Result | None = None
    gradients: tuple[Tensor, ...] | None = None
    mass: Tensor | float = 1.0
    differentiable: bool = False
    _pairs: dict[Edge, Tensor] = field(default_factory=dict, init=False, repr=False)

    @property
    def potentials(self) -> list[Tensor]:
        """The potentials f_1, …, f_k: tensors (..., n_l) in float64 (float32 on devices without float64)."""
        parts = self.flat_potentials.to(vector_dtype(self.problem.device)).split(list(self.problem.sizes), 1)
        return [self._shaped(part) for part in parts]

    @property
    def result(self) -> Result:
        """Status of the solve, that of the worst problem in a batch; `result.value` is a message.

        With `fixed_steps`, the error is read on the host only when this property is accessed.
        """
        if not _finite(self.value):
            return Result.OUT_OF_RANGE
        if self.reason is not None:
            return self.reason
        if not _finite(self.error):
            return Result.OUT_OF_RANGE
        if not bool((self.error <= self.tol * self.mass).all()):
            return Result.OUT_OF_STEPS
        if self.standard_error is None:
            return Result.CONVERGED
        return Result.ESTIMATED if _finite(self.standard_error) else Result.UNTRUSTED

    @property
    def converged(self) -> bool:
        """Whether the solve of every problem of the batch reached the tolerance, and no result is untrusted."""
        return self.result in (Result.CONVERGED, Result.ESTIMATED)

    def _shaped(self, tensor: Tensor) -> Tensor:
        return tensor.reshape(*self.problem.batch, *tensor.shape[1:])

    def in_units_of(self, problem: Problem, mass: Tensor | None = None) -> Solution:
        """Convert to `problem`, the same problem in another dtype, and multiply the coupling by `mass` (b,).

        For a factor m, the value becomes m (value + eps log m), and one potential increases by eps log m.
        """
        b, dtype = problem.num_batch, problem.dtype
        wide = self.flat_potentials.to(vector_dtype(problem.device))
        mass = wide.new_ones(b) if mass is None else mass.to(wide.dtype).expand(b)
        shaped = mass.reshape(problem.batch)
        potential_change = self.epsilon * mass.log()

        gradients = self.gradients
        if gradients is not None:
            factors = [mass.reshape([-1] + [1] * (gradient.ndim - 1)) for gradient in gradients]
            gradients = tuple((gradient * factor).to(dtype) for gradient, factor in zip(gradients, factors))
        first = torch.arange(wide.shape[1], device=wide.device) < problem.sizes[0]
        value = (self.value + potential_change.reshape(problem.batch)) * shaped
        standard_error = self.standard_error
        if standard_error is not None:  # plus the rounding error of the narrower dtype
            standard_error = (standard_error * shaped + torch.finfo(dtype).eps * value.abs()).to(dtype)
        return replace(
            self,
            problem=problem,
            value=value.to(dtype),
            flat_potentials=wide + potential_change.unsqueeze(1) * first,
            error=(self.error * shaped).to(dtype),
            mass=shaped,
            coupling_form=RescaledCoupling(self.coupling_form, mass, self.problem.dtype, dtype),
            standard_error=standard_error,
            relative_gradient_error=None
            if self.relative_gradient_error is None
            else self.relative_gradient_error.to(dtype),
            gradients=gradients,
        )

    def marginal(self, l: int) -> Tensor:
        """Return the marginal of view l: (..., n_l)."""
        return self._shaped(self.coupling_form.marginal(_checks.view_index("l", l, self.problem.k)))

    def pair_marginal(self, l: int, m: int) -> Tensor:
        """Return the pair marginal of views l and m: (..., n_l, n_m), without building the full tensor."""
        k = self.problem.k
        l, m = _checks.view_index("l", l, k), _checks.view_index("m", m, k)
        if l == m:
            raise ValueError(f"m must be a view other than l = {l}, got {m}.")
        pair = self._pair(min(l, m), max(l, m))
        return self._shaped(pair if l < m else pair.transpose(-1, -2))

    def _pair(self, l: int, m: int) -> Tensor:
        if not self.differentiable:
            return self.coupling_form.pair(l, m)
        if not self._pairs:
            edges = all_edges(self.problem.k)
            self._pairs.update(zip(edges, differentiable_marginals(self._detached(), edges)))
        return self._pairs[l, m]

    def _detached(self) -> Solution:
        """Return a copy with a detached value, for use in the autograd graph.

        `self` references outputs of the graph. If the graph referenced `self`, they would form a reference cycle.
        """
        return replace(self, value=self.value.detach(), differentiable=False)

    def coupling(self, *, limit: int | None = None) -> Tensor:
        """Return the full tensor (..., n_1, …, n_k).

        Args:
            limit: maximum size in bytes; None means half of the total memory of the device.

        Raises:
            ValueError: the tensor exceeds the limit.
        """
        size = self.problem.num_batch * self.problem.num_tuples * self.problem.dtype.itemsize
        limit = memory_limit(self.problem.device) if limit is None else limit
        _checks.fits("the full coupling", size, limit, "use pair_marginal(l, m), or raise limit")
        if self.differentiable:
            return self._shaped(*differentiable_marginals(self._detached(), [tuple(range(self.problem.k))]))
        return self._shaped(torch.cat([slab for _, slab in self.coupling_form.rows()], dim=1))

    def __repr__(self) -> str:
        state = "converged" if self.converged else f"NOT converged ({self.result.name.lower().replace('_', ' ')})"
        return (
            f"Solution({self.solver}, {state} after {self.num_steps} steps, error {float(self.error.max()):.1e}, "
            f"value {self.value.tolist() if self.value.numel() < 5 else tuple(self.value.shape)})"
        )


def _finite(numbers: Tensor) -> bool:
    return math.isfinite(numbers.item()) if numbers.numel() == 1 else bool(torch.isfinite(numbers).all())
