"""Heads after an encoder: a projector to the embedding, and a predictor for the student."""

from __future__ import annotations

from torch import Tensor, nn

from m3g import _checks


class Head(nn.Module):
    """Perceptron `Linear → GELU → Linear → LayerNorm`, or a single linear map: (n, in_features) to (n, out_features).

    The paper's vision head has `hidden=4096, out_features=256`; the defaults are chosen for a few thousand rows.

    Args:
        in_features: number of input features.
        hidden: units of the hidden layer; None for one linear map without normalisation (the paper's EEG head, with
            `out_features=32`).
        out_features: number of output features.
        bias: initial value of all biases of the last layer. With a hidden layer and a positive value, the points of all
            views start in one half-space. Otherwise, losses that are invariant to signs (`gram`, `pmrl`, `symile`) may
            align the views only up to signs.
        weight_std: standard deviation of the initial weights (0.02 in the paper), drawn from a normal distribution
            truncated at two standard deviations; initial biases are zero. None for PyTorch's initialisation.

    Example:
        >>> import torch
        >>> Head(128, hidden=256, out_features=32)(torch.randn(8, 128)).shape
        torch.Size([8, 32])
    """

    def __init__(
        self,
        in_features: int,
        *,
        hidden: int | None = 512,
        out_features: int = 64,
        bias: float | None = None,
        weight_std: float | None = None,
    ):
        super().__init__()
        self.in_features = _checks.positive_int("in_features", in_features)
        self.out_features = _checks.positive_int("out_features", out_features)
        if hidden is None:
            self.layers = nn.Sequential(nn.Linear(in_features, out_features))
        else:
            _checks.positive_int("hidden", hidden)
            self.layers = nn.Sequential(
                nn.Linear(in_features, hidden),
                nn.GELU(),
                nn.Linear(hidden, out_features),
                nn.LayerNorm(out_features),
            )
        if weight_std is not None:
            _checks.positive("weight_std", weight_std)
            for layer in self.layers:
                if isinstance(layer, nn.Linear):
                    nn.init.trunc_normal_(layer.weight, std=weight_std, a=-2 * weight_std, b=2 * weight_std)
                    nn.init.zeros_(layer.bias)
        if bias is not None:
            nn.init.constant_(self.layers[-1].get_parameter("bias"), bias)

    def forward(self, features: Tensor) -> Tensor:
        embedding: Tensor = self.layers(features)
        return embedding


class Projector(Head):
    """Map from features to the embedding; see `Head`."""


class NoProjector(nn.Identity):
    """Identity, for an encoder whose output is already the embedding."""

    def __init__(self, out_features: int) -> None:
        super().__init__()
        self.out_features = out_features


class Predictor(Head):
    """Map from the student's embedding to the teacher's; see `Head`. The teacher has no predictor."""
