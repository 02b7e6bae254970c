"""Linear encoders of rows of numbers, which may start at a fitted map and have a network beside them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from m3g import _checks
from m3g.nets.encoders import MLP


class Linear(nn.Module):
    r"""Linear map to the embedding, :math:`W x / \sqrt{d} + b`; inputs are flattened to (n, in_features).

    The division by :math:`\sqrt d` makes the effect of a step of Adam on the output independent of the number of
    features. The output is the embedding: no projector follows.

    Args:
        in_features: numbers d of one input.
        out_features: features of the embedding.
        hidden: not used by a linear map.
        bias: where all biases start; None starts at 0.

    Example:
        >>> Linear(47)(torch.randn(8, 47)).shape
        torch.Size([8, 64])
    """

    embeds = True  # the output is the embedding

    def __init__(
        self, in_features: int, *, out_features: int = 64, hidden: int | None = None, bias: float | None = None
    ) -> None:
        super().__init__()
        self.in_features = _checks.positive_int("in_features", in_features)
        self.out_features = _checks.positive_int("out_features", out_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        nn.init.normal_(self.weight)
        nn.init.constant_(self.bias, bias or 0.0)

    def forward(self, view: Tensor) -> Tensor:
        return nn.functional.linear(view.flatten(1) / math.sqrt(self.in_features), self.weight, self.bias)

    @torch.no_grad()
    def start_at(self, mean: Tensor, directions: Tensor) -> None:
        """Set the map to `(x - mean) @ directions`, with a mean (d,) and directions (d, out_features)."""
        self.weight.copy_(directions.T * math.sqrt(self.in_features))
        self.bias.copy_(-mean @ directions)


class Tfidf(Linear):
    """A linear map of TF-IDF features of text, which the data module computes (`m3g.data.tables.tfidf`)."""

    def __init__(
        self, in_features: int, *, out_features: int = 64, hidden: int | None = None, bias: float | None = None
    ) -> None:
        super().__init__(in_features, out_features=out_features, bias=bias)


class Residual(Linear):
    """A linear map plus a multilayer perceptron whose last layer starts at zero, so that it starts as the linear map.

    Args:
        in_features: numbers of one input.
        width, depth, dropout: of the perceptron's blocks, see `MLP`.
        out_features: features of the embedding.
        hidden: units of the perceptron's last hidden layer; None leaves it out.
        bias: where all biases of the linear map start; None starts at 0.

    Example:
        >>> encoder = Residual(47).eval()
        >>> x = torch.randn(8, 47)
        >>> bool((encoder(x) == Linear.forward(encoder, x)).all())
        True
    """

    def __init__(
        self,
        in_features: int,
        *,
        width: int = 256,
        depth: int = 2,
        dropout: float = 0.2,
        out_features: int = 64,
        hidden: int | None = 512,
        bias: float | None = None,
    ) -> None:
        super().__init__(in_features, out_features=out_features, bias=bias)
        last = nn.Linear(hidden or width, out_features)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        between = [] if hidden is None else [nn.Linear(width, _checks.positive_int("hidden", hidden)), nn.GELU()]
        self.residual = nn.Sequential(MLP(in_features, width=width, depth=depth, dropout=dropout), *between, last)

    def forward(self, view: Tensor) -> Tensor:
        correction: Tensor = self.residual(view)
        return super().forward(view) + correction
