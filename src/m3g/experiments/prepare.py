"""From the files of public small sets to those the laptop runs read; done once, into the experiment's own folder."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from m3g import _checks
from m3g.training.files import atomic


def _source(source: Path | None, name: str) -> Path:
    """A file in the user's data folder."""
    if source is None:
        raise ValueError(f"--data must be the folder that holds {name}, got nothing.")
    if not (source / name).is_file():
        raise ValueError(f"--data must be a folder that holds {name}, but {source} does not.")
    return source / name


def _once(target: Path, name: str, make: Callable[[], dict[str, np.ndarray]]) -> None:
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
        with np.load(_source(source, "fonts_5styles_28.npz"), allow_pickle=False) as stored:
            for style in (name for name in stored.files if name != "chars"):
                faces = stored[style]
                arrays[style] = faces.reshape(-1, *faces.shape[2:])
                arrays[f"{style}_label"] = np.tile(stored["chars"], len(faces))
        return arrays

    _once(target, "fonts.npz", make)


def prepare_pacs(source: Path | None, target: Path, *, side: int = 32) -> None:
    """`pacs_64jpg.zip`, PACS/<domain>/<class>/*, as colour images of 32 pixels with labels."""

    def make() -> dict[str, np.ndarray]:
        image_module = _checks.extra("PIL.Image", "train")
        images: dict[str, list[np.ndarray]] = {}
        labels: dict[str, list[str]] = {}
        with zipfile.ZipFile(_source(source, "pacs_64jpg.zip")) as archive:
            for name in sorted(archive.namelist()):
                parts = Path(name).parts
                if len(parts) != 4 or name.endswith("/"):
                    continue
                with archive.open(name) as file, image_module.open(file) as image:
                    images.setdefault(parts[1], []).append(np.asarray(image.convert("RGB").resize((side, side))))
                labels.setdefault(parts[1], []).append(parts[2])
        stacked = {domain: np.stack(part) for domain, part in images.items()}
        return {**stacked, **{f"{domain}_label": np.array(part) for domain, part in labels.items()}}

    _once(target, "pacs.npz", make)
