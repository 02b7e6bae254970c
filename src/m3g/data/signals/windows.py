"""Windows of multi-channel signals: each channel is a view."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from m3g import _checks
from m3g.data.base import ViewsData, class_codes
from m3g.data.batch import TensorRows
from m3g.data.splits import SPLITS, read_split, split_rows
from m3g.data.storage.numpy_files import Archive

log = logging.getLogger(__name__)


class Signals(ViewsData):
    """Recordings of several channels, such as EEG, divided into windows; the channels are the views.

    Each `.npz` file contains `signals`, numbers of shape (recordings, channels, time) or (channels, time), and
    optionally `channels` (their names), `subject` (one per recording; by default the file's name) and `label` (one per
    recording). Every window of every channel is scaled to mean 0 and standard deviation 1, or to 0 if it is constant.
    Splits are by subject, because windows of one subject are similar. A sample of a view has shape (1, window).

    Args:
        paths: the files, or a folder of `.npz` files, such as the output of `m3g prepare`.
        channels: the channels to use, in this order, by name, or by number if the files contain no names; by default
            all.
        window: samples per window; by default each recording is one window. An incomplete last window is dropped.
        signals, subject, label: names of the arrays in the files.
        batch_size: windows per step and process.
        val, test: fractions of the subjects held out.
        split_seed: seed of the split.
        splits: a .csv file with the columns `subject` and `split`, used instead of val, test and split_seed.
        seed: seed of the training order.
        num_workers: processes that prepare batches.
    """

    shared_encoder: ClassVar[bool] = True
    few_shot: ClassVar[bool] = True

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        *,
        channels: Sequence[str | int] | None = None,
        window: int | None = None,
        signals: str = "signals",
        subject: str = "subject",
        label: str = "label",
        batch_size: int = 64,
        val: float = 0.1,
        test: float = 0.2,
        split_seed: int = 0,
        splits: str | Path | None = None,
        seed: int = 0,
        num_workers: int = 0,
    ):
        super().__init__(batch_size=batch_size, seed=seed, num_workers=num_workers)
        files = [Path(path) for path in ([paths] if isinstance(paths, (str, Path)) else paths)]
        if len(files) == 1 and files[0].is_dir():
            files = sorted(files[0].glob("*.npz"))
        if not files:
            raise ValueError("paths must be at least one .npz file, got none.")
        contents = [_read(file, channels, window, signals, subject, label) for file in files]
        file_windows, file_subjects, file_labels, file_channels = zip(*contents)
        self.view_names = file_channels[0]
        layouts = {f"{', '.join(names)} ({part.shape[2]} samples)" for part, names in zip(file_windows, file_channels)}
        if len(layouts) > 1:
            raise ValueError(
                "paths must be files with the same channels and window, got "
                f"{' and '.join(sorted(layouts)[:2])}: set channels and window."
            )
        windows = np.concatenate(file_windows)
        subjects = np.concatenate(file_subjects)
        self.subjects = sorted(set(subjects.tolist()))
        labels = None
        if all(array is not None for array in file_labels):
            self.class_names, labels = class_codes(np.concatenate(file_labels))
        elif any(array is not None for array in file_labels):
            raise ValueError(f"{label!r} must be in every file or in none, got some files with it and some without.")
        if self.k < 2:
            raise ValueError(f"channels must be at least 2, got {self.k}: {self.view_names}.")
        self.view_shapes = [(1, windows.shape[-1])] * self.k
        if splits is None:
            rows = split_rows(len(windows), val=val, test=test, seed=split_seed, groups=subjects)
        else:
            rows = read_split(Path(splits), subjects)
        for split in SPLITS:
            take = torch.from_numpy(rows[split])
            chosen = torch.from_numpy(windows[rows[split]])
            self.datasets[split] = TensorRows(
                list(chosen.unsqueeze(2).unbind(1)), None, None if labels is None else labels[take], take
            )


def _read(
    file: Path,
    channels: Sequence[str | int] | None,
    window: int | None,
    signals: str,
    subject: str,
    label: str,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, list[str]]:
    """Return the windows (n, channels, time) of a file, their subjects (n,) and labels (n,), and the channel names."""
    if file.suffix != ".npz" or not file.is_file():
        raise ValueError(f"paths must be .npz files that exist, got {str(file)!r}: check the path.")
    try:
        with Archive(file) as stored:
            arrays = {name: stored[name] for name in (signals, "channels", subject, label) if name in stored.files}
            present = ", ".join(stored.files)
    except (ValueError, OSError) as error:
        raise ValueError(
            f"paths must be .npz files that can be read without pickle, got {str(file)!r} ({error})."
        ) from error
    if signals not in arrays:
        raise ValueError(f"signals must be the name of an array in {str(file)!r} ({present}), got {signals!r}.")
    data = arrays[signals]
    data = data[None] if data.ndim == 2 else data
    if data.ndim != 3 or data.size == 0:
        raise ValueError(
            f"{signals!r} must have shape (recordings, channels, time), got {data.shape} in {str(file)!r}."
        )
    if data.dtype.kind not in "biuf":
        raise ValueError(f"{signals!r} must be real numbers, got {data.dtype} in {str(file)!r}.")
    recordings = len(data)
    names = [str(name) for name in np.atleast_1d(arrays.get("channels", np.arange(data.shape[1])))]
    if len(names) != data.shape[1]:
        raise ValueError(
            f"'channels' must be {data.shape[1]} names, one per channel, got {len(names)} in {str(file)!r}."
        )
    for name in (subject, label):
        if name in arrays and arrays[name].shape not in ((), (recordings,)):
            raise ValueError(
                f"{name!r} must have one entry per recording ({recordings}), got shape {arrays[name].shape} "
                f"in {str(file)!r}."
            )
    subjects = np.broadcast_to(arrays.get(subject, np.array(file.stem)), (recordings,)).astype(str)
    labels = np.broadcast_to(arrays[label], (recordings,)) if label in arrays else None
    if channels is not None:
        selected = [str(channel) for channel in channels]
        unknown = next((channel for channel in selected if channel not in names), None)
        if unknown is not None:
            raise ValueError(f"channels must be some of {', '.join(names)}, got {unknown!r}.")
        if len(set(selected)) < len(selected):
            raise ValueError(f"channels must be distinct, got {', '.join(selected)}.")
        data, names = data[:, [names.index(channel) for channel in selected]], selected
    length = data.shape[-1] if window is None else _checks.positive_int("window", window)
    if length < 2:
        raise ValueError(f"window must be at least 2 samples, because each window is scaled separately, got {length}.")
    per_recording, rest = divmod(data.shape[-1], length)
    if per_recording == 0:
        raise ValueError(
            f"window must be at most {data.shape[-1]}, the number of samples of a recording, got {length}."
        )
    if rest:
        log.info(
            "%s: the last %d of %d samples of a recording do not fill a window and are dropped.",
            file.name,
            rest,
            data.shape[-1],
        )
    cut = data[..., : per_recording * length].astype(np.float32)
    cut = cut.reshape(recordings, len(names), per_recording, length).transpose(0, 2, 1, 3)
    windows = _scaled(cut.reshape(-1, len(names), length), file)
    return windows, subjects.repeat(per_recording), None if labels is None else labels.repeat(per_recording), names


def _scaled(windows: np.ndarray, file: Path) -> np.ndarray:
    """Return windows (n, channels, time) scaled to mean 0 and standard deviation 1 in each channel."""
    if not np.isfinite(windows).all():
        n, channel, _ = (int(part[0]) for part in np.nonzero(~np.isfinite(windows)))
        raise ValueError(
            f"signals must be finite numbers, got NaN or inf in window {n}, channel {channel} of {str(file)!r}: "
            "remove such windows."
        )
    # A constant channel, such as a loose electrode, becomes exactly zero, because its first sample is subtracted.
    shifted = windows - windows[..., :1]
    deviation = shifted.std(-1, keepdims=True)
    scaled: np.ndarray = (shifted - shifted.mean(-1, keepdims=True)) / np.where(deviation > 0, deviation, 1.0)
    return scaled
