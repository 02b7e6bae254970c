"""Convolutional encoder for small images."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from m3g import _checks


class ConvNet(nn.Module):
    """Blocks `Conv2d(3×3, stride 2) → GroupNorm → GELU`, one per entry of `channels`, then average pooling.

    Each block halves the side. Intended for images of 28 to 64 pixels on a CPU; use `transformers` for larger ones.

    Args:
        in_channels: 1 for grey images, 3 for colour.
        channels: width of every block.
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
