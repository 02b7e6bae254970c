"""One recording: channels at their own rates and the stages that a scorer gave; and how it is cut into windows."""

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
    """Where a recording is: its name, its subject, the file of signals and that of annotations, if there is one."""

    name: str
    subject: str
    signals: Path
    annotations: Path | None


@dataclass(frozen=True)
class Stage:
    """A stretch of time in seconds from the start of the recording, and the stage it was scored as."""

    start: float
    end: float
    name: str


@dataclass(frozen=True)
class Recording:
    """Signals (one array per channel, which may differ in rate), their rates in Hz, and the scored stages."""

    signals: Sequence[np.ndarray]
    rates: Sequence[float]
    stages: Sequence[Stage]


def find_channels(wanted: Sequence[str], present: Sequence[str], source: Source) -> list[int]:
    """The places of the wanted channels; "EEG Fpz-Cz", "Fpz-Cz" and "FPZ CZ" are one name.

    Example:
        >>> source = Source("night", "someone", Path("night.edf"), None)
        >>> find_channels(["Pz-Oz"], ["EEG Fpz-Cz", "EEG PZ-OZ"], source)
        [1]
    """
    known = [_plain(name) for name in present]
    for name in wanted:
        if known.count(_plain(name)) != 1:
            raise ValueError(
                f"channels must be names that the recording has once each ({', '.join(present)}), got {name!r} for "
                f"{str(source.signals)!r}."
            )
    return [known.index(_plain(name)) for name in wanted]


def _plain(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "", name.upper().strip().removeprefix("EEG "))


def to_windows(recording: Recording, *, rate: int, seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """Windows (n, channels, rate × seconds) in float32, and the stage of each.

    A window lies within one scored stretch, the first at its start. What is before the first stage or after the last,
    was not scored, or fills no whole window, is left out. So are windows with samples that are not numbers.
    """
    signals = [resampled(signal, old, rate) for signal, old in zip(recording.signals, recording.rates)]
    whole = np.stack([signal[: min(map(len, signals))] for signal in signals])
    length = round(rate * seconds)
    starts: list[int] = []
    names: list[str] = []
    for stage in recording.stages:
        last = min(round(stage.end * rate), whole.shape[1])
        fitting = range(max(round(stage.start * rate), 0), last - length + 1, length)
        starts += fitting
        names += [stage.name] * len(fitting)
    windows = np.stack([whole[:, start : start + length] for start in starts]) if starts else whole[None, :, :0]
    finite = np.isfinite(windows).all((1, 2)) if starts else np.zeros(1, dtype=bool)
    return windows[finite].astype(np.float32), np.array(names or [""])[finite]


def resampled(signal: np.ndarray, old: float, new: float) -> np.ndarray:
    """A signal at another rate, by a polyphase filter.

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
