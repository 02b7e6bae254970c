"""Solve for the optimal coupling, read its marginals, and use a graph of views.

Three noisy views of the same points are shuffled independently. The pair marginals of the coupling recover which row of
view 1 belongs to which row of view 0, without a tensor of n^k entries. The second part uses a chain of five views, in
which only neighbouring views have a cost. For a chain, the complexity is O(k n²) instead of O(n^k).

    python examples/coupling.py
"""

import argparse

import torch
from torch.nn.functional import normalize

import m3g


def shuffled_views(k: int, n: int, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return unit vectors (k, n, d) whose rows are shuffled in each view, and the orders (k, n)."""
    generator = torch.Generator().manual_seed(0)
    objects = torch.randn(n, 16, generator=generator)
    orders = torch.stack([torch.randperm(n, generator=generator) for _ in range(k)])
    views = objects[orders] + noise * torch.randn(k, n, 16, generator=generator)
    return normalize(views, dim=-1), orders


def recall(solution: m3g.Solution, orders: torch.Tensor, l: int, m: int) -> str:
    """Return the fraction of rows of view l whose most likely partner in view m is the same object, as text."""
    partner = solution.pair_marginal(l, m).argmax(1)
    return f"{(orders[m][partner] == orders[l]).float().mean():4.0%} of view {l} matched correctly with view {m}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=64, help="points of a view")
    parser.add_argument("--noise", type=float, default=0.7)
    args = parser.parse_args()
    n = args.n

    views, orders = shuffled_views(3, n, args.noise)
    cost = m3g.CircularVariance()
    two = m3g.solve(cost(views[:2]), epsilon=0.02, tol=1e-6)
    three = m3g.solve(cost(views), epsilon=0.02, tol=1e-6)
    print(f"two views alone    {recall(two, orders, 0, 1)}")
    print(f"three views        {recall(three, orders, 0, 1)}")
    print(f"                   {three}")
    off = max(float((three.marginal(l) * n - 1).abs().max()) for l in range(3))
    print(f"                   every point has mass 1/{n}, up to {100 * off:.2f} %")

    k = 5
    views, orders = shuffled_views(k, n, args.noise)
    chain = m3g.PairwiseCost("cosine", weights={(l, l + 1): 1.0 for l in range(k - 1)})
    solution = m3g.solve(chain(views), epsilon=0.1)
    print(f"a chain of {k} views {recall(solution, orders, 0, 1)}")
    print(f"                   {recall(solution, orders, 0, k - 1)}, with which it shares no edge")
    print(f"                   {solution}")


if __name__ == "__main__":
    main()
