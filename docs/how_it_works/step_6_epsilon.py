r"""
Effect of epsilon
=================

The first figure shows the pair marginal of two of three views at three values of :math:`\varepsilon` and, on the right,
the mass on the true pairs against :math:`\varepsilon` for the two scales of the cost in the paper. The second figure
shows the retrieval accuracy after training with eight values of :math:`\varepsilon`. :doc:`/choose_epsilon` explains
how to choose a value.
"""

import matplotlib.pyplot as plt
import torch

import m3g
from m3g.data import MultipleFeatures
from m3g.evaluation import retrieval

torch.manual_seed(0)
k, n = 3, 16
views = torch.nn.functional.normalize(torch.randn(n, 8) + 0.7 * torch.randn(k, n, 8), dim=-1)
problem = m3g.CircularVariance()(views)

figure, axes = plt.subplots(1, 4, figsize=(11, 2.9), width_ratios=[1, 1, 1, 1.7], layout="constrained")
for axis, epsilon in zip(axes, (0.2, 0.05, 0.01)):
    axis.imshow(m3g.solve(problem, epsilon=epsilon).pair_marginal(0, 1).numpy(), cmap="Blues", vmin=0, vmax=1 / n)
    axis.set(title=rf"$P_{{12}}$ at $\varepsilon$ = {epsilon}", xticks=[], yticks=[])

epsilons = torch.logspace(-1.6, 0.3, 25).tolist()
for scale, label in (("definition", "the definition"), ("algorithm2", "Algorithm 2")):
    scaled = m3g.CircularVariance(scale)(views)
    right = [m3g.solve(scaled, epsilon=epsilon).pair_marginal(0, 1).trace() for epsilon in epsilons]
    axes[3].semilogx(epsilons, right, label=f"scale of {label}")
axes[3].axvline(0.05, color="0.6", lw=1)
axes[3].set(xlabel=r"$\varepsilon$", ylabel="mass on the true pairs", title=f"two scales, k = {k}: a factor of 9")
axes[3].legend(fontsize=8)

# %%
# The second figure uses real views: three feature sets of the built-in digits, trained for three epochs with one seed.
# The score is R@1 of a test digit in one view among the 400 test digits in another.

data = MultipleFeatures(views=["fourier", "pixels", "zernike"])
train, test = data.arrays("train")[0], data.arrays("test")[0]


def recall_at_1(epsilon):
    torch.manual_seed(0)
    networks = [torch.nn.Linear(view.shape[1], 32) for view in train]
    optimizer = torch.optim.AdamW([p for network in networks for p in network.parameters()], lr=5e-3)
    loss = m3g.M3GLoss(epsilon)
    for _ in range(3):
        for rows in torch.randperm(len(train[0])).split(64)[:-1]:
            gap = loss([network(view[rows]) for network, view in zip(networks, train)])
            optimizer.zero_grad()
            gap.backward()
            optimizer.step()
    with torch.no_grad():
        recall = retrieval(torch.stack([network(view) for network, view in zip(networks, test)])).recall[1]
    return 100 * float(recall[~torch.eye(k, dtype=torch.bool)].mean())


values = [0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.5]
figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
axis.semilogx(values, [recall_at_1(epsilon) for epsilon in values], "o-")
axis.set_xticks(values, [f"{epsilon:g}" for epsilon in values])
axis.set(xlabel=r"$\varepsilon$ in the scale of the definition", ylabel="R@1, %")
top_axis = axis.secondary_xaxis("top", functions=(lambda epsilon: 9 * epsilon, lambda epsilon: epsilon / 9))
top_axis.set_xticks([9 * epsilon for epsilon in values], [f"{9 * epsilon:.2g}" for epsilon in values])
top_axis.set_xlabel(r"$\varepsilon$ in the scale of Algorithm 2 (k = 3)")
for x_axis in (axis.xaxis, top_axis.xaxis):
    x_axis.minorticks_off()
