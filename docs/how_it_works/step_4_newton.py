r"""
4. Newton steps find the scalings
=================================

The scalings :math:`u_l = e^{f_l/\varepsilon}` must make the marginals of all views uniform; the :math:`f_l` are called
potentials. Sinkhorn's algorithm, which the paper uses, corrects one view after the other. It is slow if
:math:`\varepsilon` is small. For a small :math:`\varepsilon`, the solver of m3g therefore uses Newton steps. Up to a
factor, the **Hessian** of the dual problem is a :math:`kn \times kn` matrix that consists of the marginals and the
pair marginals of step 3 (right). A Newton step solves one linear system with this matrix and corrects all views
together.
"""

import matplotlib.pyplot as plt
import torch

import m3g

torch.manual_seed(0)
k, n = 3, 24
views = torch.nn.functional.normalize(torch.randn(n, 16) + torch.randn(k, n, 16), dim=-1).double()
problem = m3g.CircularVariance()(views)


def errors(solver, steps, epsilon):
    """Return the error of the marginals after each number of steps, while it is above the numerical precision."""
    measured = [m3g.solve(problem, epsilon=epsilon, solver=solver(fixed_steps=s), tol=1e-9).error.item() for s in steps]
    return [error for error in measured if error > 1e-12]


figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), width_ratios=[1.5, 1], layout="constrained")
for epsilon, colour in ((0.05, "C0"), (0.02, "C1"), (0.01, "C3")):
    sweeps = [1, 2, 4, 8, 16, 32, 64, 128]
    sinkhorn = errors(m3g.Sinkhorn, sweeps, epsilon)
    newton = errors(m3g.Factored, range(1, 15), epsilon)
    left.loglog(sweeps[: len(sinkhorn)], sinkhorn, "--", color=colour, label=rf"Sinkhorn, $\varepsilon$ = {epsilon}")
    left.loglog(
        range(1, len(newton) + 1), newton, "o-", ms=4, color=colour, label=rf"Newton, $\varepsilon$ = {epsilon}"
    )
left.axhline(1e-3, color="0.6", lw=1)
left.text(1, 1.3e-3, "default tolerance", color="0.4", fontsize=8)
left.set(xlabel="steps or sweeps", ylabel="error of the marginals", ylim=(1e-12, 10))
left.legend(fontsize=8)

solution = m3g.solve(problem, epsilon=0.02, tol=1e-9)
rows = [[solution.pair_marginal(l, m) if l != m else solution.marginal(l).diag() for m in range(k)] for l in range(k)]
right.imshow(torch.cat([torch.cat(row, 1) for row in rows]).sqrt().numpy(), cmap="Blues")
right.set(title=r"the Newton matrix: diag($m_l$) and $P_{lm}$", xticks=[], yticks=[])

# %%
# A Sinkhorn sweep and a Newton step differ in cost; :doc:`/results/speed` compares the total times. Newton steps that
# overshoot are shortened (:doc:`/mathematics`).
