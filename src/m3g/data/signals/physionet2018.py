"""PhysioNet/CinC Challenge 2018: a folder per recording with `.hea`, `.mat` and the annotations in `.arousal`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from m3g import _checks
from m3g.data.signals.recording import Recording, Source, Stage, find_channels

CHANNELS = ("F3-M2", "F4-M1", "C3-M2", "C4-M1", "O1-M2", "O2-M1")
HELD_OUT = {"val": 0.2, "test": 0.0}
STAGES = ("W", "N1", "N2", "N3", "R")


def find(folder: Path) -> list[Source]:
    """Return all recordings below the folder, sorted by name; each recording is of a different subject."""
    sources = []
    for header in sorted(folder.rglob("*.hea"), key=lambda path: path.stem):
        annotations = header.with_suffix(".arousal")
        stored = annotations if annotations.is_file() else None
        sources.append(Source(header.stem, header.stem, header.with_suffix(".mat"), stored))
    return sources


def read(source: Source, channels: Sequence[str]) -> Recording:
    """Return the selected channels and the stages; a stage lasts until the next one or the end of the recording."""
    wfdb = _checks.extra("wfdb", "eeg")
    name = str(source.signals.with_suffix(""))
    header = wfdb.rdheader(name)
    chosen = find_channels(channels, header.sig_name, source)
    record = wfdb.rdrecord(name, channels=chosen)
    if source.annotations is None:
        raise ValueError(f"recordings must have stages, got no {source.name}.arousal next to {str(source.signals)!r}.")
    notes = wfdb.rdann(name, source.annotations.suffix[1:])
    scored = [(sample / record.fs, note.strip("\x00 ")) for sample, note in zip(notes.sample, notes.aux_note)]
    scored = [(start, note) for start, note in scored if note in STAGES]
    ends = [start for start, _ in scored[1:]] + [record.sig_len / record.fs]
    stages = [Stage(start, end, note) for (start, note), end in zip(scored, ends)]
    return Recording(list(record.p_signal.T), [record.fs] * len(chosen), stages)
