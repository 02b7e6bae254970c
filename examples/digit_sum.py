"""Learn from three views of which any two are independent: the product cost succeeds, pairwise costs cannot.

View 1 is a handwritten digit a, view 2 a handwritten digit b, and view 3 one that shows (a + b) mod 10, each in a
different feature set of the built-in digits. After training without labels, views 1 and 2 are used as a query for the
nearest point of view 3. The score is the fraction of queries for which this point shows the sum.

    python examples/digit_sum.py
"""

import argparse
import time

import torch
from torch import nn

import m3g
from m3g.data import MultipleFeatures
from m3g.losses import ViewLoss, build

FEATURES, WIDTH = ("karhunen", "pixels", "profile"), 32
LOSSES = {
    "m3g, cv": lambda: build("m3g", cost="cv", temperature=0.1),
    "m3g, product": lambda: build("m3g", cost="product", temperature=0.2),
    "m3g-rest": lambda: build("m3g-rest", temperature=0.2),
}


class Digits:
    """Triples of digits a, b and (a + b) mod 10, redrawn for every batch."""

    def __init__(self, split: str) -> None:
        rows = MultipleFeatures(views=FEATURES).datasets[split]
        self.views, self.labels = rows.views, rows.label.long()
        self.by_digit = [(self.labels == digit).nonzero().flatten() for digit in range(10)]

    def draw(self, n: int) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Return three views (n, d_l), and the digit that the third one shows."""
        first, second = torch.randint(len(self.labels), (2, n))
        total = (self.labels[first] + self.labels[second]) % 10
        third = torch.stack([rows[torch.randint(len(rows), ())] for rows in map(self.by_digit.__getitem__, total)])
        return [view[rows] for view, rows in zip(self.views, (first, second, third))], total


def train(loss: ViewLoss, digits: Digits, *, steps: int, n: int = 32) -> nn.ModuleList:
    torch.manual_seed(0)
    networks = nn.ModuleList(
        nn.Sequential(nn.Linear(view.shape[1], 128), nn.ReLU(), nn.Linear(128, WIDTH)) for view in digits.views
    )
    optimizer = torch.optim.Adam(networks.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        views, _ = digits.draw(n)
        gap = loss([network(view) for network, view in zip(networks, views)])
        optimizer.zero_grad()
        gap.backward()
        optimizer.step()
        schedule.step()
    return networks


@torch.no_grad()
def sum_accuracy(networks: nn.ModuleList, cost: m3g.costs.Cost, digits: Digits, n: int = 400) -> float:
    """Return the fraction of pairs (a, b) whose query retrieves a point of view 3 that shows the sum."""
    torch.manual_seed(1)
    views, total = digits.draw(n)
    points = nn.functional.normalize(torch.stack([net(view) for net, view in zip(networks, views)]), dim=-1)
    scores = cost.query(points, 2) @ cost.candidates(points[2]).T
    return float((total[scores.argmax(1)] == total).double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--loss", choices=LOSSES, action="append", help="by default all of them")
    args = parser.parse_args()

    training, test = Digits("train"), Digits("test")
    print("sum of two digits retrieved among 400 new digits (chance 10 %)")
    for name in args.loss or LOSSES:
        start, loss = time.perf_counter(), LOSSES[name]()
        networks = train(loss, training, steps=args.steps)
        accuracy = sum_accuracy(networks, loss.cost, test)
        print(f"{name:14s} {100 * accuracy:5.1f} %   ({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    main()
