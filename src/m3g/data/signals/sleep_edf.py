"""Sleep-EDF Expanded: `SC4001E0-PSG.edf` with its hypnogram `SC4001EC-Hypnogram.edf` (EDF+)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from m3g import _checks
from m3g.data.signals.recording import Recording, Source, Stage, find_channels

CHANNELS = ("Fpz-Cz", "Pz-Oz")
HELD_OUT = {"val": 0.2, "test": 0.2}
# Stages 3 and 4 of the older scoring rules are merged; "?" and "Movement time" are treated as unscored.
STAGES = {"W": "W", "1": "N1", "2": "N2", "3": "N3", "4": "N3", "R": "R"}


def find(folder: Path) -> list[Source]:
    """Return all recordings below the folder, sorted by name; the name SC4ssN means night N of subject ss."""
    hypnograms = {path.name[:6]: path for path in sorted(folder.rglob("*-Hypnogram.edf"))}
    sources = []
    for path in sorted(folder.rglob("*-PSG.edf"), key=lambda path: path.name):
        if not re.match(r"S[CT]\d{4}", path.name):
            raise ValueError(f"recordings must be named like SC4001E0-PSG.edf, got {path.name!r}.")
        sources.append(Source(path.name[:6], path.name[:5], path, hypnograms.get(path.name[:6])))
    return sources


def read(source: Source, channels: Sequence[str]) -> Recording:
    """Return the given channels in physical units, and the stages of the hypnogram."""
    pyedflib = _checks.extra("pyedflib", "eeg")
    if source.annotations is None:
        raise ValueError(f"recordings must have a hypnogram, got none for {str(source.signals)!r}.")
    with pyedflib.EdfReader(str(source.signals)) as edf:
        chosen = find_channels(channels, edf.getSignalLabels(), source)
        signals = [edf.readSignal(c) for c in chosen]
        rates = [float(edf.getSampleFrequency(c)) for c in chosen]
    with pyedflib.EdfReader(str(source.annotations)) as edf:
        starts, durations, notes = edf.readAnnotations()
    stages = []
    for start, duration, note in zip(starts, durations, notes):
        name = STAGES.get(note.removeprefix("Sleep stage ").strip())
        if name is not None:
            stages.append(Stage(float(start), float(start + duration), name))
    return Recording(signals, rates, sorted(stages, key=lambda stage: stage.start))
