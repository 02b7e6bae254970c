"""Emoji of five vendors: one archive, or a folder of images per vendor."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from m3g import _checks
from m3g.experiments.sources.files import Arrays, MissingData, once

VENDORS = ("noto", "twemoji", "fluent-emoji-flat", "openmoji", "fluent-emoji-high-contrast")
TRAIN, NEW = "emoji_16.npz", "emoji_16_new.npz"  # emoji used for training, and those excluded from it
NEW_CLASSES = 0.2  # fraction of the emoji that is excluded from training
SIDE = 32  # pixels


def read_emoji(source: Path | None) -> dict[str, np.ndarray]:
    """Return, by vendor, the images (n, 32, 32, 3) of the same n emoji in the same order."""
    if source is not None and (source / "emoji_5vendors_32.npz").is_file():
        with np.load(source / "emoji_5vendors_32.npz", allow_pickle=False) as stored:
            return {str(name): images for name, images in zip(stored["domains"], stored["X"])}
    folders = {name: (source or Path()) / "emoji" / name for name in VENDORS}
    if source is None or not all(folder.is_dir() for folder in folders.values()):
        raise MissingData(
            "--data must be a folder that contains emoji_5vendors_32.npz or images emoji/VENDOR/NAME.png "
            f"of the vendors {', '.join(VENDORS)}, got {source or 'no folder'}."
        )
    names = sorted(set.intersection(*({path.name for path in folder.glob("*.png")} for folder in folders.values())))
    if not names:
        raise MissingData(f"--data must contain images of the same NAME.png for all vendors, got none in {source}.")
    return {vendor: np.stack([_on_white(folder / name) for name in names]) for vendor, folder in folders.items()}


def _on_white(path: Path) -> np.ndarray:
    pillow = _checks.extra("PIL.Image", "train")
    with pillow.open(path) as image:
        picture = image.convert("RGBA").resize((SIDE, SIDE))
    white = pillow.new("RGBA", picture.size, "white")
    return np.asarray(pillow.alpha_composite(white, picture).convert("RGB"))


def prepare_emoji(source: Path | None, target: Path) -> None:
    """Write two files: the emoji used for training, and those excluded from it."""

    def part(new: bool) -> Arrays:
        images = read_emoji(source)
        n = len(next(iter(images.values())))
        order = np.random.default_rng(0).permutation(n)
        cut = int(NEW_CLASSES * n)
        rows = np.sort(order[:cut] if new else order[cut:])
        return {
            **{name: halved(stack[rows]) for name, stack in images.items()},
            **{f"{name}_label": rows for name in images},
        }

    once(target, TRAIN, lambda: part(new=False))
    once(target, NEW, lambda: part(new=True))


def halved(images: np.ndarray) -> np.ndarray:
    """Return images of half the side, each pixel the mean of four: (n, h, w, c) -> (n, h / 2, w / 2, c).

    Example:
        >>> halved(np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1))[0, :, :, 0]
        array([[ 2,  4],
               [10, 12]], dtype=uint8)
    """
    n, height, width, channels = images.shape
    blocks = images.reshape(n, height // 2, 2, width // 2, 2, channels)
    return blocks.mean((2, 4)).round().astype(np.uint8)
