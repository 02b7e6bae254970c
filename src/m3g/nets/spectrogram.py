"""Encoder of sounds: a mel spectrogram, then convolutions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from m3g import _checks
from m3g.nets.encoders import ConvNet


class SpectrogramNet(nn.Module):
    """Convolutional network on the logarithm of a mel spectrogram; inputs (n, samples).

    The spectrogram is computed for the whole batch on its device. It contains the power in `bands` triangular bands,
    evenly spaced on the mel scale `2595 log10(1 + f / 700)` up to half the rate.

    Args:
        rate: samples per second.
        bands: number of frequency bands.
        window: length of a spectrogram window in seconds.
        hop: seconds from one window to the next.
        channels: width of every convolutional block.
        pool: side of the pooled grid, which is flattened.

    Example:
        >>> SpectrogramNet(rate=8000, channels=(16, 32), pool=2)(torch.randn(3, 4000)).shape
        torch.Size([3, 128])
    """

    def __init__(
        self,
        *,
        rate: int = 16000,
        bands: int = 64,
        window: float = 0.032,
        hop: float = 0.016,
        channels: Sequence[int] = (32, 64, 128),
        pool: int = 2,
    ):
        super().__init__()
        self.rate = _checks.positive_int("rate", rate)
        self.size = round(_checks.positive("window", window) * rate)
        self.hop = round(_checks.positive("hop", hop) * rate)
        if self.size < 16 or self.hop < 1:
            raise ValueError(
                f"window and hop must be at least 16 samples and 1 sample, got {self.size} and {self.hop}."
            )
        self.network = ConvNet(in_channels=1, channels=channels, pool=pool)
        self.out_features: int = self.network.out_features
        self.filters = nn.Buffer(
            mel_filters(self.size // 2 + 1, rate, _checks.positive_int("bands", bands)), persistent=False
        )
        self.hann = nn.Buffer(torch.hann_window(self.size), persistent=False)

    def forward(self, view: Tensor) -> Tensor:
        sound = view.float()
        sound = nn.functional.pad(sound, (0, max(0, self.size - sound.shape[-1])))
        spectrum = torch.stft(sound, self.size, self.hop, window=self.hann.float(), center=False, return_complex=True)
        power = self.filters.float() @ spectrum.abs().square()
        # The offset limits the logarithm of silence; the division scales the values to a magnitude near 1.
        image = (power.add(1e-5).log() / 4).to(view.dtype if view.is_floating_point() else torch.float32)
        features: Tensor = self.network(image.unsqueeze(1))
        return features


def mel_filters(bins: int, rate: int, bands: int) -> Tensor:
    """Return triangular filters (bands, bins) over the frequencies 0 to rate / 2, each of sum 1.

    Example:
        >>> mel_filters(129, 8000, 20).shape
        torch.Size([20, 129])
    """
    bank = _checks.extra("transformers.audio_utils", "train").mel_filter_bank
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about empty bands, which are replaced below
        filters = bank(bins, bands, 0.0, rate / 2, rate, mel_scale="htk").T
    # A band narrower than a bin uses the nearest bin.
    for band in np.flatnonzero(filters.sum(1) == 0):
        centre = 700 * ((1 + rate / 1400) ** ((band + 1) / (bands + 1)) - 1)
        filters[band, round(centre / (rate / 2) * (bins - 1))] = 1.0
    return torch.from_numpy((filters / filters.sum(1, keepdims=True)).astype(np.float32))
