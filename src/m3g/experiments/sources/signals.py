"""Readers of recordings: windows written by `m3g prepare`, or the archives used for the stored results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from m3g import _checks
from m3g.experiments.sources.files import Arrays, MissingData, check_paths, find_file, once, shown

# Name of a sensor in the tables: its name in Sleep-EDF Expanded.
SENSORS = {
    "EEG_Fpz_Cz": "Fpz-Cz",
    "EEG_Pz_Oz": "Pz-Oz",
    "EOG": "EOG horizontal",
    "EMG": "EMG submental",
    "Resp": "Resp oro-nasal",
    "Temp": "Temp rectal",
}
SITES = ("F3", "F4", "C3", "C4", "O1", "O2")
BANDS = 24
MAX_FILES, MAX_WINDOWS = 20, 4000  # maximum numbers of recordings and windows in each file of `prepare_windows`
PREPARED = "windows of m3g prepare sleep-edf with the six sensors (sleep/*.npz)"


def read_sleep(source: Path | None) -> Arrays:
    """Return the spectral features of each sensor, `stage` and `subject`, from an archive or from prepared windows."""
    if source is not None and (source / "sleepedfx_sc20_features.npz").is_file():
        with np.load(source / "sleepedfx_sc20_features.npz", allow_pickle=False) as stored:
            arrays = {name: stored[name].astype(np.float32) for name in SENSORS}
            return {**arrays, "stage": stored["stages"][stored["y"]], "subject": stored["subject"]}
    parts = []
    for file in _window_files(source, "sleep", PREPARED):
        with np.load(file, allow_pickle=False) as stored:
            names = [str(name) for name in stored["channels"]]
            if not set(SENSORS.values()) <= set(names):
                raise MissingData(f"--data must contain {PREPARED}, got the channels {', '.join(names)} in {file}.")
            signals = stored["signals"][:, [names.index(name) for name in SENSORS.values()]]
            part = dict(zip(SENSORS, band_powers(signals).transpose(1, 0, 2)))
            subject = np.broadcast_to(stored["subject"], len(signals))
            parts.append({**part, "stage": stored["label"], "subject": subject})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def prepare_sleep(source: Path | None, target: Path) -> None:
    once(target, "sleep.npz", lambda: read_sleep(source))


def band_powers(signals: np.ndarray, *, bands: int = BANDS) -> np.ndarray:
    """Return the log power (..., bands) of signals (..., time) in logarithmically spaced frequency bands.

    Example:
        >>> time = np.arange(3000) / 100
        >>> float(band_powers(np.sin(2 * np.pi * 10 * time)).argmax())
        18.0
    """
    power = np.abs(np.fft.rfft(signals - signals.mean(-1, keepdims=True), axis=-1)) ** 2
    edges = np.unique(np.round(np.geomspace(1, power.shape[-1], bands + 1)).astype(int))
    while len(edges) < bands + 1:  # replace edges that rounding made equal; the lowest bands are one frequency wide
        gaps = np.setdiff1d(np.arange(1, power.shape[-1]), edges)
        edges = np.sort(np.append(edges, gaps[0]))
    sums = np.add.reduceat(power, edges[:-1], axis=-1) / np.diff(edges)
    return np.log(sums + 1e-8).astype(np.float32)


def prepare_raw_eeg(source: Path | None, target: Path, *, rate: int = 125) -> None:
    """Convert `eegmat_125hz.npz` and `uci_eeg_smni.npz` to windows of one second, of equal rate and six sites."""

    def eegmat() -> Arrays:
        windows, subjects = [], []
        with np.load(find_file(source, "eegmat_125hz.npz"), allow_pickle=False) as stored:
            sites = [stored["channels"].tolist().index(site) for site in SITES]
            for name in (name for name in stored.files if name[0] == "s" and name[1:3].isdigit()):
                signal = stored[name][sites].astype(np.float32)
                count = signal.shape[1] // rate
                windows.append(signal[:, : count * rate].reshape(len(SITES), count, rate).transpose(1, 0, 2))
                subjects += [name[:3]] * count
        return {"signals": np.concatenate(windows), "subject": np.array(subjects), "channels": np.array(SITES)}

    def uci() -> Arrays:
        resample = _checks.extra("scipy.signal", "train").resample
        with np.load(find_file(source, "uci_eeg_smni.npz"), allow_pickle=False) as stored:
            sites = [stored["channels"].tolist().index(site) for site in SITES]
            signal = resample(stored["X"][:, sites].astype(np.float64), rate, axis=-1).astype(np.float32)
            group = np.where(stored["alcoholic"], "alcoholic", "control")
            return {"signals": signal, "subject": stored["subject"], "label": group, "channels": np.array(SITES)}

    once(target, "eegmat.npz", eegmat)
    once(target, "uci_eeg.npz", uci)


def prepare_windows(source: Path | None, target: Path) -> None:
    """Write windows from the first recordings of `pretrain` (PhysioNet 2018) and of `sleep` (Sleep-EDF)."""
    for folder, reader in (("pretrain", "physionet2018"), ("sleep", "sleep-edf")):
        files = _window_files(source, folder, f"windows of m3g prepare {reader} ({folder}/*.npz)")
        once(target, f"{folder}_windows.npz", lambda files=files: _some_windows(files))  # type: ignore[misc]


def _some_windows(files: Sequence[Path]) -> Arrays:
    parts: list[Arrays] = []
    random = np.random.default_rng(0)
    for file in files[:MAX_FILES]:
        with np.load(file, allow_pickle=False) as stored:
            rows = np.sort(random.permutation(len(stored["signals"]))[: MAX_WINDOWS // min(len(files), MAX_FILES)])
            subject = np.broadcast_to(stored["subject"], len(stored["signals"]))
            part = {"signals": stored["signals"][rows], "subject": subject[rows], "label": stored["label"][rows]}
            parts.append({**part, "channels": stored["channels"]})
    joined = {name: np.concatenate([part[name] for part in parts]) for name in ("signals", "subject", "label")}
    return {**joined, "channels": parts[0]["channels"]}


def _window_files(source: Path | None, folder: str, what: str) -> list[Path]:
    files = [] if source is None else sorted((source / folder).glob("*.npz"))
    if not files:
        raise MissingData(f"--data must be a folder that contains {what}, got {shown(source)}.")
    return files


def check_paper_windows(source: Path | None, target: Path) -> None:
    """Check that the split files of the prepared windows exist; the windows are read in place."""
    check_paths(source, "pretrain/split.csv", "sleep/split.csv", made_by="m3g prepare")
