"""Loading of images as centre crops or random crops, and of arrays of small images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import torch
from torch import Tensor

from m3g import _checks
from m3g.data.images.augment import random_box
from m3g.data.storage.limits import open_image
from m3g.data.storage.numpy_files import Archive

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


def load_image(path: Path | BinaryIO, side: int) -> Tensor:
    """Read an image as a uint8 tensor (3, side, side): resize the shorter side to `side`, then centre-crop."""
    ops = _checks.extra("PIL.ImageOps", "train")
    bicubic = _checks.extra("PIL.Image", "train").Resampling.BICUBIC
    return _squares(path, lambda image: [ops.fit(image, (side, side), method=bicubic)])[0]


def load_crops(path: Path, size: int, generators: Sequence[np.random.Generator]) -> Tensor:
    """Read m random crops of an image, one per generator, as a uint8 tensor (m, 3, size, size); see `random_box`."""
    bicubic = _checks.extra("PIL.Image", "train").Resampling.BICUBIC
    return _squares(
        path,
        lambda image: [image.resize((size, size), bicubic, box=random_box(*image.size, g)) for g in generators],
    )


def _squares(path: Path | BinaryIO, cut: Callable[[Image], list[Image]]) -> Tensor:
    """Open an image and return the m squares that `cut` returns for it as a uint8 tensor (m, 3, side, side)."""
    try:
        with open_image(path) as image:
            squares = [np.array(square) for square in cut(image.convert("RGB"))]
    except (OSError, SyntaxError, ValueError) as error:  # raised by PIL for an invalid image
        raise ValueError(
            f"images must be readable files, got {str(path)!r} ({error}): replace or remove it."
        ) from error
    return torch.from_numpy(np.stack(squares)).permute(0, 3, 1, 2)


def read_archive(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of an `.npz` file."""
    if not path.is_file():
        raise ValueError(f"path must be an .npz file that exists, got {str(path)!r}: check the path.")
    try:
        with Archive(path) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError) as error:
        raise ValueError(f"path must be an .npz file that can be read, got {str(path)!r} ({error}).") from error


def version_of(path: Path) -> tuple[int, int]:
    """Return the modification time and size of a file, as a cache key; (0, 0) if it does not exist."""
    status = path.stat() if path.exists() else None
    return (0, 0) if status is None else (status.st_mtime_ns, status.st_size)


def as_signed(images: np.ndarray) -> Tensor:
    """Convert uint8 images (n, h, w, c) to floats in [-1, 1] (n, c, h, w)."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).float().div(127.5).sub(1.0)
