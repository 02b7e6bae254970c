"""Draw digit_sum.png: python docs/pictures/digit_sum_picture.py

Trains examples/digit_sum.py with three losses and plots the retrieved digit of the third view against the true sum.
"""

import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import torch

HERE = Path(__file__).parent
example = runpy.run_path(str(HERE.parents[1] / "examples" / "digit_sum.py"))
TITLES = {"m3g, cv": "circular variance (pairs)", "m3g, product": "product", "m3g-rest": "product of the rest"}


def table(name: str) -> torch.Tensor:
    """Return the fraction of the queries of each true sum (rows) that retrieve each digit (columns)."""
    loss = example["LOSSES"][name]()
    networks = example["train"](loss, example["Digits"]("train"), steps=1000)
    torch.manual_seed(1)
    views, total = example["Digits"]("test").draw(400)
    with torch.no_grad():
        embedded = torch.stack([network(view) for network, view in zip(networks, views)])
    points = torch.nn.functional.normalize(embedded, dim=-1)
    retrieved = total[(loss.cost.query(points, 2) @ loss.cost.candidates(points[2]).T).argmax(1)]
    counts = torch.zeros(10, 10).index_put_((total, retrieved), torch.ones(len(total)), accumulate=True)
    return counts / counts.sum(1, keepdim=True)


figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained", sharey=True)
for axis, (name, title) in zip(axes, TITLES.items()):
    part = table(name)
    image = axis.imshow(part, cmap="Blues", vmin=0, vmax=1)
    axis.set(title=f"{title}: {100 * part.diagonal().mean():.0f} %", xlabel="retrieved digit", xticks=range(10))
axes[0].set(ylabel="(a + b) mod 10", yticks=range(10))
figure.colorbar(image, ax=axes, label="fraction of the queries", shrink=0.9)
figure.savefig(HERE / "digit_sum.png", dpi=110)
