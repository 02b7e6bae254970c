"""Train with missing views: a mask makes incomplete objects usable.

Two runs start from the same weights on the same data, in which about half of the entries are missing at random. One
uses only complete objects; the other uses all objects and passes the mask.

    python examples/missing_views.py
"""

import argparse

import torch
from torch import nn

import m3g
from m3g.evaluation import retrieval

K, WIDTH = 4, 16


def make_views(n: int, generator: torch.Generator) -> torch.Tensor:
    """Return (k, n, width): each view is a different fixed rotation of a hidden vector, with noise."""
    rotations, _ = torch.linalg.qr(torch.randn(K, WIDTH, WIDTH, generator=torch.Generator().manual_seed(1)))
    hidden = torch.randn(n, WIDTH, generator=generator)
    return hidden @ rotations + 0.3 * torch.randn(K, n, WIDTH, generator=generator)


def make_mask(n: int, missing_rate: float, generator: torch.Generator) -> torch.Tensor:
    """Return bool (k, n), True if a view is present; every object has at least one."""
    mask = torch.rand(K, n, generator=generator) >= missing_rate
    mask[0] |= ~mask.any(0)
    return mask


def train(views: torch.Tensor, mask: torch.Tensor, *, steps: int, batch_size: int) -> nn.ModuleList:
    torch.manual_seed(0)
    networks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(K))
    optimizer = torch.optim.Adam(networks.parameters(), lr=1e-2)
    loss = m3g.M3GLoss(epsilon=0.05)
    for _ in range(steps):
        rows = torch.randperm(views.shape[1])[:batch_size]
        # Values of missing entries affect neither the loss nor the gradient, but must not be NaN: 0 * NaN is NaN in
        # the gradient of the networks.
        gap = loss(embed(networks, views[:, rows]), mask=mask[:, rows])
        optimizer.zero_grad()
        gap.backward()
        optimizer.step()
    return networks


def embed(networks: nn.ModuleList, views: torch.Tensor) -> torch.Tensor:
    return torch.stack([network(view) for network, view in zip(networks, views)])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=200, help="objects")
    parser.add_argument("--missing", type=float, default=0.5, help="probability that an entry is missing")
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()

    generator = torch.Generator().manual_seed(0)
    views, test = make_views(args.n, generator), make_views(500, generator)
    mask = make_mask(args.n, args.missing, generator)
    complete = mask.all(0)
    print(
        f"{args.n} objects, {int(complete.sum())} with all {K} views; "
        f"{mask.float().mean():.0%} of all entries are present"
    )
    everything = torch.ones(K, int(complete.sum()), dtype=torch.bool)
    for name, part, present in [
        ("complete objects only", views[:, complete], everything),
        ("all objects, with a mask", views, mask),
    ]:
        networks = train(part, present, steps=args.steps, batch_size=32)
        with torch.no_grad():
            recall = retrieval(embed(networks, test)).recall[1]  # (k, k), one on the diagonal
        score = float(recall[~torch.eye(K, dtype=torch.bool)].mean())
        print(f"{name:26s} R@1 among 500 new objects: {100 * score:.1f} %")


if __name__ == "__main__":
    main()
