"""Recordings with scored stages, and their division into windows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from scipy.signal import resample_poly


@dataclass(frozen=True)
class Source:
    """Files of a recording: the signals and, if any, the annotations, with the name and the subject."""

    name: str
    subject: str
    signals: Path
    annotations: Path | None


@dataclass(frozen=True)
class Stage:
    """Interval of time, in seconds from the start of the recording, and its scored stage."""

    start: float
    end: float
    name: str


@dataclass(frozen=True)
class Recording:
    """Signals (one array (time,) per channel), their sampling rates in Hz, which may differ, and the scored stages."""

    signals: Sequence[np.ndarray]
    rates: Sequence[float]
    stages: Sequence[Stage]


def find_channels(channels: Sequence[str], present: Sequence[str], source: Source) -> list[int]:
    """Return the indices of the given channels; "EEG Fpz-Cz", "Fpz-Cz" and "FPZ CZ" are treated as the same name.

    Example:
        >>> source = Source("night", "someone", Path("night.edf"), None)
        >>> find_channels(["Pz-Oz"], ["EEG Fpz-Cz", "EEG PZ-OZ"], source)
        [1]
    """
    known = [_plain(name) for name in present]
    for name in channels:
        if known.count(_plain(name)) != 1:
            raise ValueError(
                f"channels must be names that occur once in the recording ({', '.join(present)}), got {name!r} for "
                f"{str(source.signals)!r}."
            )
    return [known.index(_plain(name)) for name in channels]


def _plain(name: str) -> str:
    """Return the letters and digits of a channel name in upper case, without the prefix EEG."""
    return re.sub(r"[^A-Z0-9]", "", name.upper().strip().removeprefix("EEG "))


def to_windows(recording: Recording, *, rate: int, seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """Return windows (n, channels, rate × seconds) in float32, and the names of their stages (n,).

    Each scored interval is divided into windows from its start. Samples outside scored intervals, incomplete windows,
    and windows with NaN or infinite samples are dropped.
    """
    signals = [resampled(signal, old, rate) for signal, old in zip(recording.signals, recording.rates)]
    stacked = np.stack([signal[: min(map(len, signals))] for signal in signals])
    length = round(rate * seconds)
    starts: list[int] = []
    names: list[str] = []
    for stage in recording.stages:
        last = min(round(stage.end * rate), stacked.shape[1])
        window_starts = range(max(round(stage.start * rate), 0), last - length + 1, length)
        starts += window_starts
        names += [stage.name] * len(window_starts)
    windows = np.stack([stacked[:, start : start + length] for start in starts]) if starts else stacked[None, :, :0]
    finite = np.isfinite(windows).all((1, 2)) if starts else np.zeros(1, dtype=bool)
    return windows[finite].astype(np.float32), np.array(names or [""])[finite]


def resampled(signal: np.ndarray, old: float, new: float) -> np.ndarray:
    """Resample a signal to another rate with a polyphase filter.

    Example:
        >>> slow = np.sin(np.arange(200) / 20)
        >>> fast = resampled(slow, 100, 200)
        >>> bool(np.abs(fast[40:-40:2] - slow[20:-20]).max() < 1e-2)
        True
    """
    if not (math.isfinite(old) and old > 0):
        raise ValueError(f"rate must be a positive number of samples per second, got {old!r}.")
    ratio = Fraction(new / old).limit_denominator(10_000)
    return signal if ratio == 1 else resample_poly(signal, ratio.numerator, ratio.denominator)
