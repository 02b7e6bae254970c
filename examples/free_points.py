"""Gradient descent on the matching gap moves points in the plane until the true matching is the best one.

There are n objects in k = 3 views and no network. The figure shows the points at the start, halfway to the step from
which the true matching is the best one, and at the end. Colours are objects and shapes are views. Coloured triangles
show the true matching, and grey lines the best polymatching.

    python examples/free_points.py --n 5 --out demo/free_points.png
"""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure

import m3g

K = 3
COST = m3g.PairwiseCost("sqeuclidean")
SHAPES = "os^"


def best_tuples(points: torch.Tensor) -> torch.Tensor:
    """Return the tuples (s, k) in the support of the best polymatching without entropy."""
    coupling = m3g.solve(COST(points), epsilon=0.0, solver="linear-program").coupling()
    return (coupling > 1e-6).nonzero()


def is_true(tuples: torch.Tensor) -> bool:
    return bool((tuples == tuples[:, :1]).all())


def descend(points: torch.Tensor, *, epsilon: float, steps: int, rate: float) -> list[tuple[int, float, torch.Tensor]]:
    """Return (step, gap, points) of every step, including the start."""
    points = points.clone().requires_grad_()
    optimizer = torch.optim.Adam([points], lr=rate)
    history = []
    for step in range(steps + 1):
        gap = m3g.matching_gap(points, epsilon=epsilon, cost=COST, normalize=False)
        history.append((step, gap.item(), points.detach().clone()))
        optimizer.zero_grad()
        gap.backward()
        optimizer.step()
    return history


def draw(moments: list[tuple[int, float, torch.Tensor]], out: Path) -> None:
    figure = Figure(figsize=(4.2 * len(moments), 4.4), layout="constrained", dpi=130)
    axes = figure.subplots(1, len(moments), sharex=True, sharey=True)
    for axis, (step, gap, points) in zip(axes, moments):
        for i in range(points.shape[1]):
            axis.fill(*points[:, i].T, color=f"C{i}", alpha=0.25, linewidth=0)
        for chosen in best_tuples(points):
            corners = points[torch.arange(K), chosen]
            axis.plot(*corners[[0, 1, 2, 0]].T, color="0.45", linewidth=1.2, zorder=1)
        for l in range(K):
            colours = [f"C{i}" for i in range(points.shape[1])]
            axis.scatter(*points[l].T, c=colours, marker=SHAPES[l], s=70, edgecolors="black", linewidths=0.7, zorder=2)
        axis.set_title(f"step {step}: gap {gap:.4f}")
        axis.set_aspect("equal")
        axis.set_xticks([])
        axis.set_yticks([])
    figure.suptitle("coloured triangles: the true matching    grey lines: the best polymatching")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=4, help="objects")
    parser.add_argument("--epsilon", type=float, default=0.05, help="weight of the entropy")
    parser.add_argument("--steps", type=int, default=60, help="steps of gradient descent")
    parser.add_argument("--seed", type=int, default=0, help="seed of the initial points")
    parser.add_argument("--out", type=Path, default=Path("demo/free_points.png"), help="the picture")
    args = parser.parse_args()

    start = torch.rand(K, args.n, 2, generator=torch.Generator().manual_seed(args.seed))
    history = descend(start, epsilon=args.epsilon, steps=args.steps, rate=0.02)
    reached = 1 + max((step for step, _, points in history if not is_true(best_tuples(points))), default=-1)
    for step, gap, _ in history[:: max(1, args.steps // 10)]:
        print(f"step {step:4d}   gap {gap:.5f}")
    if reached > args.steps:
        raise SystemExit(f"the true matching is not the best one after {args.steps} steps: increase --steps")
    print(f"the true matching is the best one from step {reached} on")
    draw([history[0], history[reached // 2], history[-1]], args.out)
    print(f"picture   {args.out}")


if __name__ == "__main__":
    main()
