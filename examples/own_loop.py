"""Custom training loop: three views of handwritten digits, three networks, plain PyTorch.

Row i of every view describes the same digit. Labels are not used. The score is R@1 between views.

    python examples/own_loop.py --epochs 5
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import m3g
from m3g.data import MultipleFeatures
from m3g.evaluation import retrieval


class Networks(nn.Module):
    """One small network per view, all with the same output space."""

    def __init__(self, widths: list[int], out_features: int = 32):
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, out_features)) for width in widths
        )

    def forward(self, views: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([part(view) for part, view in zip(self.parts, views)])  # (k, n, d)


def recall_at_1(networks: Networks, views: list[torch.Tensor]) -> float:
    """Return R@1 averaged over all ordered pairs of views."""
    with torch.no_grad():
        recall = retrieval(networks(views)).recall[1]  # (k, k), one on the diagonal
    return float(recall[~torch.eye(len(recall), dtype=torch.bool)].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--epsilon", type=float, default=0.05, help="weight of the entropy")
    args = parser.parse_args()

    torch.manual_seed(0)
    data = MultipleFeatures(views=["fourier", "pixels", "zernike"])
    train, test = data.arrays("train")[0], data.arrays("test")[0]
    networks = Networks([view.shape[1] for view in train])
    print(f"before training   R@1 {100 * recall_at_1(networks, test):5.1f} %")

    loss = m3g.M3GLoss(args.epsilon)
    optimizer = torch.optim.AdamW(networks.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(*train), batch_size=args.batch_size, shuffle=True, drop_last=True)
    for epoch in range(1, args.epochs + 1):
        total = 0.0
        for views in loader:
            gap = loss(networks(views))
            optimizer.zero_grad()
            gap.backward()
            optimizer.step()
            total += gap.item()
        shown = f"gap {total / len(loader):.4f}   R@1 {100 * recall_at_1(networks, test):5.1f} %"
        print(f"epoch {epoch:2d}   {shown}")


if __name__ == "__main__":
    main()
