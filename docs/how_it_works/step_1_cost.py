r"""
1. The cost of a tuple
======================

Six objects are observed in three views. Each view of an object is a unit vector, here in the plane; colours are
objects, and marker shapes are views. A tuple consists of one point of each view, and a **cost** measures how badly
these points fit together. The default cost is the *circular variance*, one minus the squared length of the mean of the
vectors:

.. math:: c(z_1, \dots, z_k) = 1 - \Bigl\lvert \tfrac1k \sum_l z_l \Bigr\rvert^2 .

If the vectors agree, their mean is long (bold arrow) and the cost is near 0. The more they cancel each other, the
shorter their mean, and the closer the cost to 1.
"""

import matplotlib.pyplot as plt
import torch

import m3g

torch.manual_seed(3)
k, n = 3, 6
angles = torch.arange(n) * 2 * torch.pi / n + 0.35 * torch.randn(k, n)
views = torch.stack([angles.cos(), angles.sin()], -1)  # (k, n, d) = (3, 6, 2)
costs = m3g.CircularVariance()(views).dense()[0]  # of all n^k = 216 tuples

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), width_ratios=[1, 1, 1.35], layout="constrained")
for axis, indices in zip(axes, [(0, 0, 0), (0, 2, 4)]):
    for l, shape in enumerate("os^"):
        axis.scatter(*views[l].T, c=[f"C{i}" for i in range(n)], marker=shape, s=50, alpha=0.35)
        point = views[l, indices[l]]
        axis.scatter(*point, c=f"C{indices[l]}", marker=shape, s=90, edgecolors="black", zorder=3)
        axis.annotate("", point * 0.93, (0, 0), arrowprops={"arrowstyle": "->", "color": "0.5"})
    mean = torch.stack([views[l, indices[l]] for l in range(k)]).mean(0)
    axis.annotate("", mean, (0, 0), arrowprops={"arrowstyle": "-|>", "lw": 2.5, "color": "black"})
    axis.set(title=f"tuple {indices}: cost {costs[indices]:.2f}", aspect="equal", xticks=[], yticks=[])

true = costs[range(n), range(n), range(n)]
axes[2].hist(costs.flatten(), bins=24, color="0.8", label=f"all {n**k} tuples")
for i in range(n):
    axes[2].axvline(true[i], color=f"C{i}", lw=2)
axes[2].plot([], color="C0", lw=2, label="the true tuples (i, i, i)")
axes[2].set(xlabel="cost", ylabel="tuples", title="true tuples have a low cost")
axes[2].legend()

# %%
# The **true matching** consists of the tuples :math:`(i, i, i)`. A **polymatching** may use any of the :math:`n^k`
# tuples, as long as all points have the same mass. The loss compares the true matching with the best polymatching.
