"""The dual on a list of tuples, climbed by Newton steps."""

from __future__ import annotations

import torch
from torch import Tensor

from m3g.costs import all_edges
from m3g.solvers.sampled.products import ProductList
from m3g.solvers.sampled.tables import can_be_kept
from m3g.solvers.sampled.tuples import TupleList
from m3g.solvers.shared.newton import conjugate_gradients, solve_newton

# The largest change of the exponent of a tuple in one Newton step.
LONGEST_STEP = 8.0
# Log scalings further than this from those in the tables are taken into them.
FARTHEST = 20.0
MOST_RETREATS = 10
# Number of points of all views up to which the Hessian is built, and not only multiplied with, if memory allows: its
# blocks, the matrix, and in float64 its factors.
BUILT_SIZE = 2048
BUILT_BYTES = 32


class ListAscent:
    """Maximises Σ_l ⟨h_l, a_l⟩ - a log mass(h) over log scalings h (b, N), for a coupling of mass a = Σ a_l."""

    def __init__(self, listed: TupleList | ProductList, target: Tensor, log_scaling: Tensor):
        self.listed = listed
        self.target = target
        self.first = slice(0, listed.sizes[0])
        self.mass = target[:, self.first].sum(1, keepdim=True)
        self.num_steps = 0
        listed.rebase(log_scaling)
        self._evaluate(log_scaling)

    def _evaluate(self, log_scaling: Tensor) -> None:
        """The coupling at these log scalings, after view 0 was scaled so that the mass is right."""
        self.num_steps += 1
        if float((log_scaling - self.listed.base).abs().max()) > FARTHEST:
            self.listed.rebase(log_scaling)
        self.coupling = self.listed.at(log_scaling, self.mass)
        self.log_scaling = log_scaling.clone()
        self.log_scaling[:, self.first] += self.coupling.log_factor
        self.marginals = self.coupling.marginals()
        self.residual = self.target - self.marginals
        self.error = self.residual.abs().sum(1)
        self.height = (self.log_scaling * self.target).sum(1, keepdim=True)

    def run(self, tol: float, max_steps: int) -> None:
        """Newton steps, each shortened where it loses ground, until the marginals are within tol."""
        # An error that is not a number comes from the input; whoever asked for the solution finds it there.
        while self.num_steps < max_steps and not bool((self.error <= tol).all() | self.error.isnan().any()):
            step = self.solve(self.residual, rtol=0.1)
            longest = torch.stack([part.abs().amax(1) for part in step.split(self.listed.sizes, 1)]).sum(0)
            length = (LONGEST_STEP / longest).clamp(max=1.0).unsqueeze(1)
            start, height = self.log_scaling, self.height
            for _ in range(MOST_RETREATS):
                self._evaluate(start + length * step)
                lost = ~(self.height >= height - 1e-9 * height.abs() - 1e-9)
                if not bool(lost.any()):
                    break
                length = torch.where(lost, length / 4, length)

    def solve(self, right: Tensor, *, rtol: float) -> Tensor:
        """x with H x = right (b, N), H being the derivative of the marginals with respect to the log scalings."""
        coupling, marginals = self.coupling, self.marginals.clamp_min(1e-12 / self.listed.total)
        if not bool(torch.isfinite(right).all()):
            return torch.full_like(right, torch.nan)
        size = self.listed.total
        small = size <= BUILT_SIZE and can_be_kept(BUILT_BYTES * len(right) * size**2, right.device)
        if not small or isinstance(self.listed, ProductList):
            # Pair marginals of products are n² rank each, a multiplication with H only n rank per view.
            steps = 20 if small else 60
            found, fine = conjugate_gradients(coupling.derivative, right, marginals, rtol=rtol, max_steps=steps)
            if fine or not small:
                return found
        pairs = coupling.pairs(all_edges(self.listed.k))
        # In the type of the tables, from which the solve tells how far to trust the entries.
        here = marginals.to(pairs[0, 1].dtype)
        return solve_newton(pairs, here, right, self.listed.sizes, rtol=rtol)
