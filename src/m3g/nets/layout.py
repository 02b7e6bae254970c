"""Layout of images in an array: channels first, channels last, or without channels."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

CHANNELS = (1, 3, 4)
MIN_SIDE = 8


def image_shape(shape: Sequence[int]) -> tuple[int, int, int] | None:
    """Return (channels, height, width) of a sample shaped like an image; None for other shapes.

    A shape without channels is that of an image only if it is square. Each side must be at least `MIN_SIDE`.

    Example:
        >>> image_shape((3, 32, 24)), image_shape((32, 24, 3)), image_shape((28, 28)), image_shape((6, 3000))
        ((3, 32, 24), (3, 32, 24), (1, 28, 28), None)
    """
    if len(shape) == 3 and shape[0] in CHANNELS:
        channels, height, width = shape
    elif len(shape) == 3 and shape[2] in CHANNELS:
        height, width, channels = shape
    elif len(shape) == 2 and shape[0] == shape[1]:
        channels, height, width = 1, *shape
    else:
        return None
    return (channels, height, width) if min(height, width) >= MIN_SIDE else None


class ChannelsFirst(nn.Module):
    """Wrapper of an encoder for images (n, height, width) or (n, height, width, channels).

    The images are converted to (n, channels, height, width) for the encoder.

    Example:
        >>> import torch
        >>> ChannelsFirst(nn.Identity(), (28, 20, 3))(torch.zeros(2, 28, 20, 3)).shape
        torch.Size([2, 3, 28, 20])
    """

    def __init__(self, encoder: nn.Module, shape: Sequence[int]):
        super().__init__()
        self.encoder = encoder
        self.out_features = getattr(encoder, "out_features", None)
        self.flat = len(shape) == 2

    def forward(self, view: Tensor) -> Tensor:
        features: Tensor = self.encoder(view.unsqueeze(1) if self.flat else view.movedim(-1, 1))
        return features


def channels_first(encoder: nn.Module, shape: Sequence[int]) -> nn.Module:
    """Return the encoder, wrapped if samples of this shape are images whose channels do not come first."""
    converted = image_shape(shape)
    return encoder if converted is None or tuple(shape) == converted else ChannelsFirst(encoder, shape)
