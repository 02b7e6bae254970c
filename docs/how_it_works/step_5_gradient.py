r"""
5. The gradient is the true matching minus the best polymatching
================================================================

The loss is the cost of the true matching :math:`J` minus that of the best polymatching :math:`P^\star`, both including
entropy. Because :math:`P^\star` is optimal, the derivative with respect to the cost is :math:`J - P^\star` (Danskin's
theorem), so the backward pass does not differentiate through the solver. If the cost is a sum over pairs of views, the
gradient depends only on the pair marginals.
"""

import matplotlib.pyplot as plt
import torch

import m3g

torch.manual_seed(3)
k, n, epsilon = 3, 6, 0.05
angles = torch.arange(n) * 2 * torch.pi / n + 0.35 * torch.randn(k, n)
views = torch.stack([angles.cos(), angles.sin()], -1).requires_grad_()
gap = m3g.matching_gap(views, epsilon=epsilon, tol=1e-6)
gap.backward()
best = m3g.solve(m3g.CircularVariance()(views.detach()), epsilon=epsilon, tol=1e-6).pair_marginal(0, 1)
true = torch.eye(n) / n

figure, axes = plt.subplots(1, 4, figsize=(11, 3.1), width_ratios=[1, 1, 1, 1.4], layout="constrained")
for axis, name, matrix in zip(axes, ["truth, $I/n$", "best, $P_{12}$", "$I/n - P_{12}$"], [true, best, true - best]):
    axis.imshow(matrix.numpy(), cmap="RdBu", vmin=-1 / n, vmax=1 / n)
    axis.set(title=name, xticks=[], yticks=[])
points, descent = views.detach(), -views.grad
for l, shape in enumerate("os^"):
    axes[3].scatter(*points[l].T, c=[f"C{i}" for i in range(n)], marker=shape, s=50, edgecolors="black", linewidths=0.5)
axes[3].quiver(*points.flatten(0, 1).T, *descent.flatten(0, 1).T, width=0.006, angles="xy")
axes[3].set(title=f"direction of descent (gap {gap:.3f})", aspect="equal", xticks=[], yticks=[])
axes[3].margins(0.2)

# %%
# In :math:`I/n - P_{12}`, blue entries are true pairs that should fit better, and red entries are wrong pairs that fit
# too well. Points that are matched correctly hardly move. The views of an object need not coincide: the loss only
# requires that every rearrangement is clearly worse than the true matching. :doc:`/flow` shows the whole descent.
