"""Draw sampled.png: python docs/pictures/sampled_picture.py

Left: samples for three views of six objects in the plane: the sums of true tuples, and samples g around sums of tuples
drawn from the coupling. Right: the error of the gradient for the two forms of the kernel, by epsilon.
"""

import warnings
from pathlib import Path

import torch
from matplotlib.figure import Figure

import m3g
from m3g.losses.m3g import solved_gap
from m3g.solvers import SamplingWarning

EPSILONS = (0.02, 0.03, 0.05, 0.08, 0.13, 0.2, 0.4)


def noisy_views(k: int, n: int, d: int, noise: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(n, d, generator=generator)
    if d == 2:
        angles = torch.arange(n) * (2 * torch.pi / n)
        base = torch.stack([angles.cos(), angles.sin()], -1)
    return torch.nn.functional.normalize(base + noise * torch.randn(k, n, d, generator=generator), dim=-1)


def gradient(views: torch.Tensor, epsilon: float, solver: object, tol: float = 1e-6) -> torch.Tensor:
    leaf = views.clone().requires_grad_()
    gap, _ = solved_gap(leaf, None, epsilon=epsilon, cost=m3g.CircularVariance(), solver=solver, tol=tol)
    return torch.autograd.grad(gap, leaf)[0].double()


def main() -> None:
    warnings.simplefilter("ignore", SamplingWarning)
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)

    views, epsilon = noisy_views(3, 6, 2, 0.25), 0.03
    scale = (2 / (9 * epsilon)) ** 0.5
    solver = m3g.Sampled(rank=512, seed=0, form="products")
    coupling = m3g.solve(m3g.CircularVariance()(views), epsilon=epsilon, solver=solver).coupling_form
    fields, weights = coupling.kernel.fields[0], coupling.row_weights[0]
    left.scatter(*fields.T, s=3000 * weights, alpha=0.35, lw=0, label="samples g; size: fraction of the mass")
    centred = views - views.mean(1, keepdim=True)
    left.scatter(*(scale * centred.sum(0)).T, marker="*", s=120, color="black", label="√(2a) · sums of true tuples")
    left.set(title="k = 3 views of 6 objects in the plane, ε = 0.03", aspect="equal")
    left.legend(fontsize=7, loc="upper right")

    for noise, style in ((0.3, "o-"), (1.0, "s--")):
        views = noisy_views(4, 32, 64, noise)
        true = [gradient(views.double(), e, m3g.Factored(), 1e-9) for e in EPSILONS]
        for form, colour in (("products", "tab:blue"), ("tuples", "tab:orange")):
            estimates = [gradient(views, e, m3g.Sampled(seed=0, form=form)) for e in EPSILONS]
            errors = [float((f - t).norm() / t.norm()) for f, t in zip(estimates, true)]
            right.loglog(EPSILONS, errors, style, color=colour, label=f"{form}, view noise {noise:g}")
    right.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
    right.minorticks_off()
    right.set(xlabel="ε", ylabel="relative error of the gradient", title="k = 4, n = 32, d = 64, rank 4096")
    right.legend(fontsize=8)
    figure.savefig(Path(__file__).with_name("sampled.png"), dpi=120)


if __name__ == "__main__":
    main()
