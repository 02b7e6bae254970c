"""Conversion of a folder of recordings to windows; a repeated call continues an interrupted conversion."""

from __future__ import annotations

import csv
import itertools
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from m3g import _checks
from m3g.data.signals import physionet2018, sleep_edf
from m3g.data.signals.recording import Source, to_windows
from m3g.data.splits import SPLITS, split_rows
from m3g.data.storage.numpy_files import Archive

log = logging.getLogger(__name__)

# Modules with `CHANNELS`, `HELD_OUT` (fractions of the subjects), `find(folder)` and `read(source, channels)`.
READERS = {"physionet2018": physionet2018, "sleep-edf": sleep_edf}
LAYOUT = 1  # version of the prepared files; a change invalidates old ones


@dataclass(frozen=True)
class Prepared:
    """Result of `prepare_recordings`.

    Attributes:
        files: the files of windows, new and existing.
        num_new: number of files that were written.
        skipped: for each skipped recording, the reason.
        split: the file with the split of the subjects.
    """

    files: list[Path]
    num_new: int
    skipped: dict[str, str]
    split: Path


def prepare_recordings(
    reader: str,
    folder: str | Path,
    out: str | Path,
    *,
    channels: Sequence[str] | None = None,
    rate: int = 100,
    seconds: float = 30.0,
    skip: bool = False,
    split_seed: int = 0,
) -> Prepared:
    """Read every recording of a folder, resample it, cut it into windows, and write one `.npz` per recording.

    `Signals(out, splits=out / "split.csv")` loads the result and scales every window of every channel to mean 0 and
    standard deviation 1. Signals are resampled but not otherwise filtered. Each window lies within one scored stage;
    other samples, and windows with NaN or infinite samples, are dropped. The split is by subject and written to
    `split.csv`. It depends only on the reader, the seed, and the sorted names of the subjects with converted
    recordings. The fractions of training, validation and test subjects are 80, 20 and 0 % for physionet2018, and 60, 20
    and 20 % for sleep-edf.

    Args:
        reader: `physionet2018` or `sleep-edf`.
        folder: folder of the recordings, at any depth.
        out: output folder. Recordings already converted there, from the same files with the same settings, are not read
            again.
        channels: by default F3-M2, F4-M1, C3-M2, C4-M1, O1-M2, O2-M1 (physionet2018) or Fpz-Cz, Pz-Oz (sleep-edf).
        rate: samples per second of the windows; channels of another rate are resampled.
        seconds: length of a window.
        skip: skip unusable recordings (damaged, without annotations, without one of the channels, or without a window)
            and list them in `skipped.csv`, instead of raising an error at the first.
        split_seed: seed of the split of subjects.
    """
    module = READERS[_checks.one_of("reader", reader, READERS)]
    names = list(module.CHANNELS if channels is None else channels)
    settings = {
        "layout": LAYOUT,
        "reader": reader,
        "channels": names,
        "rate": _checks.positive_int("rate", rate),
        "seconds": _checks.positive("seconds", seconds),
    }
    folder, out = Path(folder), Path(out)
    if not folder.is_dir():
        raise ValueError(f"folder must be a folder that exists, got {str(folder)!r}: check the path.")
    sources = module.find(folder)
    if not sources:
        raise ValueError(f"folder must contain recordings of {reader}, got none below {str(folder)!r}.")
    repeated = next((a.name for a, b in itertools.pairwise(sources) if a.name == b.name), None)
    if repeated is not None:
        raise ValueError(f"folder must contain every recording once, got {repeated!r} twice below {str(folder)!r}.")
    out.mkdir(parents=True, exist_ok=True)
    files, num_new, skipped = [], 0, {}
    for number, source in enumerate(sources, start=1):
        target = out / f"{source.name}.npz"
        origin = json.dumps({**settings, "files": _sizes(source)}, sort_keys=True)
        try:
            if _origin(target) != origin:
                windows, stages = to_windows(module.read(source, names), rate=rate, seconds=seconds)
                if not len(windows):
                    raise ValueError(f"no interval of {seconds:g} s is scored and finite")
                _write(windows, stages, source, target, channels=np.array(names), origin=np.array(origin))
                num_new += 1
                log.info("%d of %d: %s, %d windows.", number, len(sources), source.name, len(windows))
            files.append(target)
        # wfdb and pyedflib raise various errors for damaged files.
        except (ValueError, OSError, LookupError, TypeError, EOFError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            if not skip:
                raise ValueError(
                    f"recordings must be readable, got {source.name!r} ({reason.rstrip('.')}): repair it, or set skip "
                    "to skip such recordings."
                ) from error
            target.unlink(missing_ok=True)  # may exist from an earlier call
            skipped[source.name] = reason
            log.warning("%s is skipped: %s", source.name, reason)
    if not files:
        raise ValueError(f"folder must contain at least one readable recording, got {len(skipped)} unreadable ones.")
    _write_rows(out / "skipped.csv", ("recording", "reason"), sorted(skipped.items()))
    split = out / "split.csv"
    usable = sorted({source.subject for source in sources if source.name not in skipped})
    chosen = split_rows(len(usable), seed=split_seed, groups=np.array(usable), **module.HELD_OUT)
    part_of = {usable[i]: part for part in SPLITS for i in chosen[part]}
    _write_rows(split, ("subject", "split"), sorted(part_of.items()))
    return Prepared(files, num_new, skipped, split)


def _write(windows: np.ndarray, stages: np.ndarray, source: Source, target: Path, **metadata: np.ndarray) -> None:
    """Write the windows of a recording atomically."""
    # Not .npz, so that readers of the folder ignore partial files.
    partial = target.with_suffix(f".partial{os.getpid()}")
    with open(partial, "wb") as file:
        subject = np.array(source.subject)
        np.savez(file, signals=windows, label=stages, subject=subject, **metadata)  # type: ignore[arg-type]
    os.replace(partial, target)


def _sizes(source: Source) -> list[tuple[str, int]]:
    """Return the names and sizes in bytes of the files of a recording."""
    present = [path for path in (source.signals, source.annotations) if path is not None and path.is_file()]
    return [(path.name, path.stat().st_size) for path in present]


def _origin(target: Path) -> str | None:
    """Return the settings and source files stored in a prepared file; None if it cannot be read."""
    try:
        with Archive(target) as stored:
            return str(stored["origin"])
    except (OSError, ValueError, KeyError, EOFError):
        return None


def _write_rows(path: Path, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a .csv file with the column names `names` atomically."""
    partial = path.with_suffix(f".partial{os.getpid()}")
    with open(partial, "w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    os.replace(partial, path)
