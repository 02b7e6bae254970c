"""Images that cannot be read: found before training, left out, counted and named."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from m3g import _checks

log = logging.getLogger(__name__)

LARGEST_SHARE = 0.01
# First and last bytes of whole files: looking at them costs a small part of decoding.
_MARKS = {
    ".jpg": (b"\xff\xd8\xff", b"\xff\xd9"),
    ".jpeg": (b"\xff\xd8\xff", b"\xff\xd9"),
    ".png": (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"),
}


def damaged_images(files: Sequence[Path]) -> set[Path]:
    """The files that are empty, cut short or no images at all; more than 1 % of them are refused.

    A file whose first and last bytes are those of a whole image passes; any other is decoded to know.
    """
    damaged = [path for path in files if not _looks_whole(path) and not _decodes(path)]
    if not damaged:
        return set()
    named = ", ".join(str(path) for path in damaged[:5]) + (", …" if len(damaged) > 5 else "")
    if len(damaged) > LARGEST_SHARE * len(files):
        raise ValueError(
            f"images must be readable but for 1 % of them, got {len(damaged)} damaged of {len(files)}: {named}."
        )
    log.warning("%d of %d images are damaged and left out: %s.", len(damaged), len(files), named)
    return set(damaged)


def _looks_whole(path: Path) -> bool:
    first, last = _MARKS.get(path.suffix.lower(), (None, None))
    if first is None or last is None:
        return False
    try:
        with open(path, "rb") as file:
            start = file.read(len(first))
            file.seek(-len(last), 2)
            return start == first and file.read() == last
    except OSError:  # shorter than the marks, or not to be opened
        return False


def _decodes(path: Path) -> bool:
    image_module = _checks.extra("PIL.Image", "train")
    try:
        with image_module.open(path) as image:
            image.load()
    except (OSError, SyntaxError, ValueError):  # PIL's errors for files that are cut short or no images
        return False
    return True
