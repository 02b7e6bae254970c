"""Detection of unreadable images and sounds before training: they are skipped, counted and named."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from m3g import _checks
from m3g.data.storage.limits import open_image

log = logging.getLogger(__name__)

MAX_DAMAGED_FRACTION = 0.01  # of all files
# First and last bytes of complete files; comparing them is much faster than decoding.
_MARKS = {
    ".jpg": (b"\xff\xd8\xff", b"\xff\xd9"),
    ".jpeg": (b"\xff\xd8\xff", b"\xff\xd9"),
    ".png": (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"),
}


def damaged_images(files: Sequence[Path]) -> set[Path]:
    """Return the files that are empty, truncated or not images; raise if more than 1 % are.

    Files that start and end with the bytes of a complete image pass; others are decoded.
    """
    damaged = [path for path in files if not _looks_complete(path) and not _decodes(path)]
    report_damaged(len(damaged), len(files), "images", _named(damaged))
    return set(damaged)


def damaged_sounds(files: Sequence[Path]) -> set[Path]:
    """Return the files that are empty, truncated before the first sample or not sounds; raise if more than 1 % are."""
    damaged = [path for path in files if not _has_samples(path)]
    report_damaged(len(damaged), len(files), "sounds", _named(damaged))
    return set(damaged)


def report_damaged(number: int, total: int, what: str, named: str) -> None:
    """Raise if more than 1 % of the files are damaged; otherwise warn if any is."""
    if number > MAX_DAMAGED_FRACTION * total:
        raise ValueError(f"{what} must be readable except for at most 1 %, got {number} damaged of {total}: {named}.")
    if number:
        log.warning("%d of %d %s are damaged and skipped: %s.", number, total, what, named)


def _named(damaged: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in damaged[:5]) + (", …" if len(damaged) > 5 else "")


def _has_samples(path: Path) -> bool:
    soundfile = _checks.extra("soundfile", "train")
    try:
        return bool(soundfile.info(str(path)).frames > 0)
    except (OSError, RuntimeError):  # errors of soundfile for a file that is not a sound
        return False


def _looks_complete(path: Path) -> bool:
    """Return whether a file starts and ends with the bytes of a complete image of its format."""
    first, last = _MARKS.get(path.suffix.lower(), (None, None))
    if first is None or last is None:
        return False
    try:
        with open(path, "rb") as file:
            start = file.read(len(first))
            file.seek(-len(last), 2)
            return start == first and file.read() == last
    except OSError:  # shorter than the marks, or cannot be opened
        return False


def _decodes(path: Path) -> bool:
    try:
        with open_image(path) as image:
            image.load()
    except (OSError, SyntaxError, ValueError):  # errors of PIL for truncated files and files that are not images
        return False
    return True
