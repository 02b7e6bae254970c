"""From the files of public small sets to those the laptop runs read; done once, into the experiment's own folder."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from m3g import _checks
from m3g.training.runs.files import atomic


def source_file(source: Path | None, name: str) -> Path:
    """A file in the user's data folder."""
    if source is None:
        raise ValueError(f"--data must be the folder that holds {name}, got nothing.")
    if not (source / name).is_file():
        raise ValueError(f"--data must be a folder that holds {name}, but {source} does not.")
    return source / name


def check_folder(source: Path | None, *names: str, made_by: str = "") -> None:
    """Refuse a data folder that lacks files or folders which the runs of the paper's scale read."""
    how = f" (made by {made_by})" if made_by else ""
    for name in names:
        if source is None or not (source / name).exists():
            raise ValueError(f"--data must be a folder that holds {name}{how}, got {source or 'nothing'}.")


def once(target: Path, name: str, make: Callable[[], dict[str, np.ndarray]]) -> None:
    """Write `target/name` unless it is there; several processes may try at once."""
    if (target / name).is_file():
        return
    arrays: dict[str, Any] = make()
    target.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    with atomic(target / name) as file:
        file.write(buffer.getbuffer())


def prepare_fonts(source: Path | None, target: Path) -> None:
    """`fonts_5styles_28.npz`, per style (faces, characters, 28, 28), as images with labels."""

    def make() -> dict[str, np.ndarray]:
        arrays = {}
        with np.load(source_file(source, "fonts_5styles_28.npz"), allow_pickle=False) as stored:
            for style in (name for name in stored.files if name != "chars"):
                faces = stored[style]
                arrays[style] = faces.reshape(-1, *faces.shape[2:])
                arrays[f"{style}_label"] = np.tile(stored["chars"], len(faces))
        return arrays

    once(target, "fonts.npz", make)


def prepare_pacs(source: Path | None, target: Path, *, fields: int = 4) -> None:
    """`pacs_64jpg.zip`, PACS/<domain>/<class>/*, with labels: edges by direction in fields, as 4 x 4 pixels of 8.

    Each image has unit length, so that faint drawings count like strong ones.
    """

    def make() -> dict[str, np.ndarray]:
        image_module = _checks.extra("PIL.Image", "train")
        images: dict[str, list[np.ndarray]] = {}
        labels: dict[str, list[str]] = {}
        with zipfile.ZipFile(source_file(source, "pacs_64jpg.zip")) as archive:
            for name in sorted(archive.namelist()):
                parts = Path(name).parts
                if len(parts) != 4 or name.endswith("/"):
                    continue
                with archive.open(name) as file, image_module.open(file) as image:
                    grey = np.asarray(image.convert("L").resize((64, 64)), dtype=np.float32)
                edges = edge_directions(grey, fields=fields)
                edges = 255 * fields * edges / max(float(np.linalg.norm(edges)), 1e-6)
                images.setdefault(parts[1], []).append(edges.clip(0, 255).astype(np.uint8).reshape(fields, fields, -1))
                labels.setdefault(parts[1], []).append(parts[2])
        stacked = {domain: np.stack(part) for domain, part in images.items()}
        return {**stacked, **{f"{domain}_label": np.array(part) for domain, part in labels.items()}}

    once(target, "pacs_edges.npz", make)


def edge_directions(image: np.ndarray, *, fields: int = 4, directions: int = 8) -> np.ndarray:
    """How strong the edges of each direction are in every field of a square image, as one row.

    Example:
        >>> edge_directions(np.eye(64)).shape
        (128,)
    """
    down, right = np.gradient(image)
    strength, angle = np.hypot(down, right), np.arctan2(down, right) % np.pi
    bins = np.minimum((angle / np.pi * directions).astype(int), directions - 1)
    side = np.arange(image.shape[0]) * fields // image.shape[0]
    place = (side[:, None] * fields + side[None, :]) * directions + bins
    counts = np.bincount(place.ravel(), weights=strength.ravel(), minlength=fields**2 * directions)
    return np.sqrt(counts).astype(np.float32)


def prepare_sleep(source: Path | None, target: Path, sensors: Sequence[str]) -> None:
    """`sleepedfx_sc20_features.npz`: an array of features per sensor, `y`, `stages` and `subject`."""

    def make() -> dict[str, np.ndarray]:
        with np.load(source_file(source, "sleepedfx_sc20_features.npz"), allow_pickle=False) as stored:
            arrays = {name: stored[name].astype(np.float32) for name in sensors}
            return {**arrays, "stage": stored["stages"][stored["y"]], "subject": stored["subject"]}

    once(target, "sleep.npz", make)


def prepare_raw_eeg(source: Path | None, target: Path, sites: Sequence[str], *, rate: int = 125) -> None:
    """`eegmat_125hz.npz` and `uci_eeg_smni.npz` as windows of one second at one rate, six sites each."""

    def eegmat() -> dict[str, np.ndarray]:
        windows, subjects = [], []
        with np.load(source_file(source, "eegmat_125hz.npz"), allow_pickle=False) as stored:
            places = [stored["channels"].tolist().index(site) for site in sites]
            for name in (name for name in stored.files if name[0] == "s" and name[1:3].isdigit()):
                signal = stored[name][places].astype(np.float32)
                count = signal.shape[1] // rate
                windows.append(signal[:, : count * rate].reshape(len(sites), count, rate).transpose(1, 0, 2))
                subjects += [name[:3]] * count
        return {"signals": np.concatenate(windows), "subject": np.array(subjects), "channels": np.array(sites)}

    def uci() -> dict[str, np.ndarray]:
        resample: Any = _checks.extra("scipy.signal", "train").resample
        with np.load(source_file(source, "uci_eeg_smni.npz"), allow_pickle=False) as stored:
            places = [stored["channels"].tolist().index(site) for site in sites]
            signal = resample(stored["X"][:, places].astype(np.float64), rate, axis=-1).astype(np.float32)
            group = np.where(stored["alcoholic"], "alcoholic", "control")
            return {"signals": signal, "subject": stored["subject"], "label": group, "channels": np.array(sites)}

    once(target, "eegmat.npz", eegmat)
    once(target, "uci_eeg.npz", uci)


def prepare_tinyimagenet(source: Path | None, target: Path, *, side: int = 32) -> None:
    """`tinyimagenet10_jpg.zip`: all images of train and val together, so that each seed can hold out many of them."""

    def make() -> dict[str, np.ndarray]:
        image_module = _checks.extra("PIL.Image", "train")
        images, labels = [], []
        with zipfile.ZipFile(source_file(source, "tinyimagenet10_jpg.zip")) as archive:
            for name in sorted(archive.namelist()):
                parts = Path(name).parts
                if parts[0] not in ("train", "val") or len(parts) != 3 or name.endswith("/"):
                    continue
                with archive.open(name) as file, image_module.open(file) as image:
                    images.append(np.asarray(image.convert("RGB").resize((side, side))))
                labels.append(parts[1])
        return {"images": np.stack(images), "label": np.array(labels)}

    once(target, "tinyimagenet.npz", make)
