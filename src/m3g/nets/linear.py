"""Linear encoders of rows of numbers, with or without an added perceptron; a fitted linear map can initialise them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from m3g import _checks
from m3g.nets.encoders import MLP


class Linear(nn.Module):
    r"""Linear map to the embedding, :math:`W x / \sqrt{d} + b`; inputs are flattened to (n, in_features).

    The division by :math:`\sqrt d` makes the effect of a step of Adam on the output nearly independent of the number of
    features if the batch is large. The output is the embedding: no projector follows.

    Args:
        in_features: number d of input features.
        out_features: features of the embedding.
        hidden: ignored, because a linear map has no hidden layer.
        bias: initial value of all biases; None means 0.

    Example:
        >>> Linear(47)(torch.randn(8, 47)).shape
        torch.Size([8, 64])
    """

    embeds = True

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
        """Set the map to x -> (x - mean) @ directions, with a mean (d,) and directions (d, out_features)."""
        self.weight.copy_(directions.T * math.sqrt(self.in_features))
        self.bias.copy_(-mean @ directions)


class Tfidf(Linear):
    """Linear map of TF-IDF features of text; the data module computes the features (`m3g.data.tables.tfidf`)."""


class Residual(Linear):
    """Linear map plus a multilayer perceptron whose last layer is initialised to zero.

    The output is the embedding: no projector follows.

    Args:
        in_features: number of input features.
        width, depth, dropout: options of the perceptron; see `MLP`.
        out_features: features of the embedding.
        hidden: units of the perceptron's last hidden layer; None for no such layer.
        bias: initial value of all biases of the linear map; None means 0.

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
        hidden_layer = [] if hidden is None else [nn.Linear(width, _checks.positive_int("hidden", hidden)), nn.GELU()]
        self.residual = nn.Sequential(MLP(in_features, width=width, depth=depth, dropout=dropout), *hidden_layer, last)

    def forward(self, view: Tensor) -> Tensor:
        correction: Tensor = self.residual(view)
        return super().forward(view) + correction
