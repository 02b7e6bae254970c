"""Built-in encoders: a multilayer perceptron for rows of numbers, and convolutions for small images and for signals."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from m3g import _checks

MAX_LAYERS = 1000


class MLP(nn.Module):
    """Multilayer perceptron of `depth` blocks `Linear → LayerNorm → GELU`; inputs are flattened to (n, in_features).

    Args:
        in_features: number of input features.
        width: features of every block and of the output.
        depth: number of blocks.
        dropout: dropout rate after every block.

    Example:
        >>> import torch
        >>> MLP(47, width=128)(torch.randn(8, 47)).shape
        torch.Size([8, 128])
    """

    def __init__(self, in_features: int, *, width: int = 256, depth: int = 2, dropout: float = 0.0):
        super().__init__()
        self.in_features = _checks.positive_int("in_features", in_features)
        self.out_features = _checks.positive_int("width", width)
        if _checks.positive_int("depth", depth) > MAX_LAYERS:
            raise ValueError(f"depth must be at most {MAX_LAYERS}, got {depth}.")
        _checks.fraction("dropout", dropout)
        layers: list[nn.Module] = [nn.Flatten()]
        for size in [in_features] + [width] * (depth - 1):
            layers += [nn.Linear(size, width), nn.LayerNorm(width), nn.GELU()]
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
        self.layers = nn.Sequential(*layers)

    def forward(self, view: Tensor) -> Tensor:
        features: Tensor = self.layers(view)
        return features


class ConvNet(nn.Module):
    """Convolutional network: blocks `Conv2d(3×3, stride 2) → GroupNorm → GELU`, then average pooling.

    Each block halves the side of the image. The network is intended for images of 28 to 64 pixels on a CPU; for larger
    images, use `ViT` or `TransformersEncoder`.

    Args:
        in_channels: 1 for grey images, 3 for colour.
        channels: width of every block, one entry per block.
        pool: side of the pooled grid, which is flattened; the output has `channels[-1] * pool²` features.

    Example:
        >>> import torch
        >>> ConvNet(in_channels=1, channels=(16, 32), pool=2)(torch.randn(4, 1, 28, 28)).shape
        torch.Size([4, 128])
    """

    def __init__(self, *, in_channels: int = 3, channels: Sequence[int] = (32, 64, 128), pool: int = 1):
        super().__init__()
        if len(channels) == 0 or any(size % 8 for size in channels):
            raise ValueError(f"channels must be multiples of 8, one per block, got {tuple(channels)}.")
        self.in_channels = _checks.positive_int("in_channels", in_channels)
        self.out_features = channels[-1] * _checks.positive_int("pool", pool) ** 2
        blocks: list[nn.Module] = []
        for before, after in zip([in_channels, *channels], channels):
            blocks += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GroupNorm(8, after), nn.GELU()]
        self.layers = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(pool), nn.Flatten())

    def forward(self, view: Tensor) -> Tensor:
        features: Tensor = self.layers(view)
        return features


class EEGEncoder(nn.Module):
    """Convolutional encoder of signals, as in the paper, which follows Brüsch et al. (2023).

    It has one block `Conv1d(stride = kernel, padding = kernel // 2) → Dropout → GroupNorm → GELU` per kernel, six by
    default, then a convolution of width 1. `maps` returns (n, channels[-1], t), with t = 33 for 3000 samples. `forward`
    averages over each of `pool` time intervals and flattens the result to (n, channels[-1] * pool).

    Args:
        in_channels: number of signals per input.
        channels: width of every block.
        kernels: kernel size and stride of every block.
        dropout: dropout rate in every block.
        pool: number of time intervals.

    Example:
        >>> import torch
        >>> encoder = EEGEncoder()
        >>> encoder.maps(torch.randn(2, 1, 3000)).shape, encoder(torch.randn(2, 1, 3000)).shape
        (torch.Size([2, 64, 33]), torch.Size([2, 256]))

    Reference: Brüsch, Schmidt, Alstrøm, 2023 :cite:`bruesch2023`.
    """

    def __init__(
        self,
        *,
        in_channels: int = 1,
        channels: Sequence[int] = (256, 256, 256, 256, 256, 64),
        kernels: Sequence[int] = (3, 2, 2, 2, 2, 2),
        dropout: float = 0.1,
        pool: int = 4,
    ):
        super().__init__()
        if len(channels) != len(kernels) or any(size % 2 for size in channels):
            raise ValueError(f"channels must be {len(kernels)} even numbers, one per kernel, got {tuple(channels)}.")
        self.in_channels = in_channels
        _checks.fraction("dropout", dropout)
        self.out_features = channels[-1] * _checks.positive_int("pool", pool)
        blocks = []
        for before, after, kernel in zip([in_channels, *channels], channels, kernels):
            blocks += [
                nn.Conv1d(before, after, kernel, stride=kernel, padding=kernel // 2),
                nn.Dropout(dropout),
                nn.GroupNorm(after // 2, after),
                nn.GELU(),
            ]
        self.maps = nn.Sequential(*blocks, nn.Conv1d(channels[-1], channels[-1], 1))
        self.pool = nn.AdaptiveAvgPool1d(pool)

    def forward(self, view: Tensor) -> Tensor:
        signal = view.unsqueeze(1) if view.ndim == 2 else view
        pooled: Tensor = self.pool(self.maps(signal))
        return pooled.flatten(1)
