"""Conversion of a folder of fonts (`.ttf`, `.otf`) to images of their characters, one array per style."""

from __future__ import annotations

import logging
import string
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from m3g import _checks

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

log = logging.getLogger(__name__)

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
SUFFIXES = (".ttf", ".otf")
MARGIN = 2  # empty pixels on every side of the largest character of a font
UNASSIGNED = "\U000e0fff"  # rendered as the font's glyph for missing characters


def render_fonts(folder: str | Path, *, side: int = 28, skip: bool = False) -> dict[str, np.ndarray]:
    """Render the 62 letters and digits of every font in a folder; its subfolders are the styles.

    All characters of a font are centred and drawn at the same scale, the largest that fits. Fonts that lack a character
    are skipped.

    Args:
        folder: contains one folder per style, with `.ttf` or `.otf` files at any depth.
        side: height and width of an image in pixels.
        skip: skip files that cannot be read, instead of raising an error at the first.

    Returns:
        One uint8 array (fonts, 62, side, side) per style, white on black, and the array `chars` of the characters.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"folder must be a folder that exists, got {str(folder)!r}: check the path.")
    styles = {
        path.name: sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
        for path in sorted(folder.iterdir())
        if path.is_dir()
    }
    faces: dict[str, list[np.ndarray]] = {}
    for style, files in styles.items():
        for file in files:
            try:
                face = render_face(file, side=side)
            except OSError as error:
                if not skip:
                    raise ValueError(
                        f"fonts must be readable, got {str(file)!r} ({error}): replace it, or skip it with --skip."
                    ) from error
                face = None
            if face is None:
                log.warning("%s is skipped: it cannot be read, or lacks a character.", file)
            else:
                faces.setdefault(style, []).append(face)
    if len(faces) < 2:
        names = ", ".join(faces) or "none"
        raise ValueError(
            f"folder must have at least two subfolders (styles) with complete .ttf or .otf fonts, got {names}."
        )
    return {**{style: np.stack(drawn) for style, drawn in faces.items()}, "chars": np.array(list(CHARACTERS))}


def render_face(file: Path, *, side: int = 28) -> np.ndarray | None:
    """Return the characters (62, side, side) of one font file, or None if it lacks one of them."""
    fonts = _checks.extra("PIL.ImageFont", "train")
    image = _checks.extra("PIL.Image", "train")
    draw = _checks.extra("PIL.ImageDraw", "train")
    basic = fonts.Layout.BASIC  # Layout.RAQM is not available on every machine and fails for unassigned characters
    probe = fonts.truetype(str(file), 100, layout_engine=basic)
    boxes = [probe.getbbox(character) for character in CHARACTERS]
    largest = max(max(right - left, bottom - top) for left, top, right, bottom in boxes)
    if largest == 0:
        return None
    missing = _pixels(probe, UNASSIGNED)
    if any(_pixels(probe, character) in (b"", missing) for character in CHARACTERS):
        return None
    font = fonts.truetype(str(file), max(1, int(100 * (side - 2 * MARGIN) / largest)), layout_engine=basic)
    drawn = []
    for character in CHARACTERS:
        left, top, right, bottom = font.getbbox(character)
        canvas = image.new("L", (side, side))
        position = ((side - left - right) / 2, (side - top - bottom) / 2)
        draw.Draw(canvas).text(position, character, fill=255, font=font)
        drawn.append(np.asarray(canvas))
    return np.stack(drawn)


def _pixels(font: FreeTypeFont, character: str) -> bytes:
    return bytes(font.getmask(character))
