"""Byte-level text encoder, which requires no vocabulary and accepts any language."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from m3g import _checks


class ByteTransformer(nn.Module):
    r"""Small transformer over the UTF-8 bytes of a text, for inputs (n, length) of bytes with 0 for padding.

    Bytes are embedded, and a convolution of width `2 * stride` produces one token per `stride` bytes. After `depth`
    layers of self-attention, all tokens except padding are averaged. An empty text is encoded as one padding token.

    Args:
        length: maximum number of bytes; longer texts are truncated.
        width: features of a token and of the output.
        depth: number of self-attention layers; 0 is fastest.
        heads: attention heads per layer, a divisor of the width.
        stride: bytes per token.
        dropout: dropout rate.

    Example:
        >>> text = torch.tensor([list(b"red."), list(b"ok\0\0")])
        >>> ByteTransformer(length=4, width=32, heads=2)(text).shape
        torch.Size([2, 32])
    """

    def __init__(
        self,
        *,
        length: int = 128,
        width: int = 128,
        depth: int = 2,
        heads: int = 4,
        stride: int = 4,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.length = _checks.positive_int("length", length)
        self.stride = _checks.positive_int("stride", stride)
        self.out_features = _checks.positive_int("width", width)
        _checks.fraction("dropout", dropout)
        depth = _checks.whole("depth", depth)
        if width % _checks.positive_int("heads", heads):
            raise ValueError(f"heads must divide width, got {heads} with width {width}.")
        self.bytes = nn.Embedding(256, width, padding_idx=0)
        self.join = nn.Conv1d(width, width, 2 * stride, stride=stride)
        self.positions = nn.Parameter(0.02 * torch.randn(-(-length // stride), width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False) if depth else None
        self.norm = nn.LayerNorm(width)

    def forward(self, view: Tensor) -> Tensor:
        text = view.long()[:, : self.length]
        tokens = -(-text.shape[1] // self.stride)
        # Padding for the convolution, so that the last token covers as many bytes as the first.
        text = nn.functional.pad(text, (0, (tokens + 1) * self.stride - text.shape[1]))
        hidden = self.join(self.bytes(text).transpose(1, 2)).transpose(1, 2) + self.positions[:tokens]
        keep = text[:, : tokens * self.stride].unflatten(1, (tokens, self.stride)).ne(0).any(2)
        # Attention over no token would be NaN, so the first token is always kept.
        keep = keep | (torch.arange(tokens, device=keep.device) == 0)
        if self.layers is not None:
            hidden = self.layers(hidden, src_key_padding_mask=~keep)
        weight = keep.to(hidden.dtype).unsqueeze(2)
        features: Tensor = self.norm((hidden * weight).sum(1) / weight.sum(1))
        return features
