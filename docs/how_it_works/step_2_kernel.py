r"""
2. The kernel factors over pairs
================================

The best polymatching is computed from the kernel :math:`e^{-C/\varepsilon}`, where :math:`C` is the tensor of the costs
of all :math:`n^k` tuples and :math:`\varepsilon` is the weight of the entropy. On unit vectors, the circular variance
is a sum over pairs of views,

.. math:: 1 - \Bigl\lvert \tfrac1k \sum_l z_l \Bigr\rvert^2 = \tfrac{1}{k^2} \sum_{l<m} \lvert z_l - z_m \rvert^2 .

The exponential of a sum is a product. For three views, the matrices :math:`K_{12}`, :math:`K_{13}` and :math:`K_{23}`
with the entries :math:`e^{-\lvert z_l - z_m\rvert^2 / (k^2 \varepsilon)}` therefore contain the same information as the
tensor.
"""

import matplotlib.pyplot as plt
import torch

import m3g

torch.manual_seed(3)
k, n, epsilon = 3, 12, 0.05
angles = torch.arange(n) * 2 * torch.pi / n + 0.2 * torch.randn(k, n)
views = torch.stack([angles.cos(), angles.sin()], -1)

pairs = [(0, 1), (0, 2), (1, 2)]
kernels = {(l, m): torch.exp(-torch.cdist(views[l], views[m]).square() / (k**2 * epsilon)) for l, m in pairs}
product = torch.einsum("ij,ik,jk->ijk", *kernels.values())
tensor = torch.exp(-m3g.CircularVariance()(views).dense()[0] / epsilon)
torch.testing.assert_close(product, tensor)

figure, axes = plt.subplots(1, 4, figsize=(11, 2.9), layout="constrained")
for axis, ((l, m), kernel) in zip(axes, kernels.items()):
    axis.imshow(kernel.numpy(), cmap="Blues", vmin=0, vmax=1)
    axis.set(
        title=f"$K_{{{l + 1}{m + 1}}}$",
        xlabel=f"point of view {m + 1}",
        ylabel=f"of view {l + 1}",
        xticks=[],
        yticks=[],
    )
axes[3].loglog(tensor.flatten(), product.flatten(), ".", ms=3)
axes[3].set(title=f"all {n**k} entries", xlabel=r"$e^{-C/\varepsilon}$", ylabel=r"$K_{12} K_{13} K_{23}$")

# %%
# The matrices have :math:`\tfrac{k(k-1)}{2} n^2` entries instead of :math:`n^k`:

for k, n in [(3, 64), (4, 64), (6, 64)]:
    print(f"k = {k}, n = {n}: {k * (k - 1) // 2 * n**2:7,} numbers instead of {n**k:15,}")
