r"""
3. Matrix products sum over tuples
==================================

The coupling of three views is

.. math:: P[i, j, h] = u_1[i]\, u_2[j]\, u_3[h]\; K_{12}[i, j]\, K_{13}[i, h]\, K_{23}[j, h],

with one vector :math:`u_l` of positive **scalings** per view. The solver requires the **pair marginals** of the
coupling. The sum over the points :math:`h` of the third view is a matrix product:

.. math:: P_{12} = (u_1 u_2^\top) \circ K_{12} \circ \bigl( K_{13} \operatorname{diag}(u_3)\, K_{23}^\top \bigr).

One matrix product, the operation for which hardware is optimised, thus sums over all :math:`n^3` tuples. No
intermediate result is larger than :math:`n \times n`. With more than three views, groups of views are contracted in the
same way (:doc:`/mathematics`).
"""

import matplotlib.pyplot as plt
import torch

torch.manual_seed(3)
k, n, epsilon = 3, 12, 0.05
angles = torch.arange(n) * 2 * torch.pi / n + 0.2 * torch.randn(k, n)
views = torch.stack([angles.cos(), angles.sin()], -1)
K12, K13, K23 = (
    torch.exp(-torch.cdist(views[l], views[m]).square() / (k**2 * epsilon)) for l, m in [(0, 1), (0, 2), (1, 2)]
)

through_third = K13 @ K23.T
marginal = K12 * through_third
torch.testing.assert_close(marginal, torch.einsum("ij,ih,jh->ij", K12, K13, K23))

figure, axes = plt.subplots(1, 5, figsize=(11, 2.7), layout="constrained")
parts = {
    "$K_{13}$": K13,
    "$K_{23}^\\top$": K23.T,
    "$K_{13} K_{23}^\\top$": through_third,
    "$K_{12}$": K12,
    "$P_{12}$, for $u = 1$": marginal,
}
for axis, sign, (name, matrix) in zip(axes, ["@", "=", "∘", "=", ""], parts.items()):
    axis.imshow(matrix.numpy(), cmap="Blues")
    axis.set(title=name, xticks=[], yticks=[])
    axis.text(1.12, 0.5, sign, transform=axis.transAxes, fontsize=20, ha="center", va="center")

# %%
# The diagonal is stronger in the last matrix than in :math:`K_{12}`, because pairs of points that both fit the same
# point of the third view gain mass. A loss that compares all views at once uses this information; a loss that compares
# only views 1 and 2 cannot.

for name, matrix in ("K12", K12), ("P12", marginal):
    print(f"{name}: {matrix.trace() / matrix.sum():.0%} of the mass on the true pairs")
