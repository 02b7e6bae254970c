"""Images and sounds that cannot be read: found before training, left out, counted and named."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from m3g import _checks
from m3g.data.storage.limits import open_image

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
    refuse_many(len(damaged), len(files), "images", _named(damaged))
    return set(damaged)


def damaged_sounds(files: Sequence[Path]) -> set[Path]:
    """The sounds that are empty, cut before their first sample or no sounds at all; more than 1 % are refused."""
    damaged = [path for path in files if not _has_samples(path)]
    refuse_many(len(damaged), len(files), "sounds", _named(damaged))
    return set(damaged)


def refuse_many(number: int, of: int, what: str, named: str) -> None:
    """Refuse more than 1 % of damaged files, and warn of fewer."""
    if number > LARGEST_SHARE * of:
        raise ValueError(f"{what} must be readable but for 1 % of them, got {number} damaged of {of}: {named}.")
    if number:
        log.warning("%d of %d %s are damaged and left out: %s.", number, of, what, named)


def _named(damaged: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in damaged[:5]) + (", …" if len(damaged) > 5 else "")


def _has_samples(path: Path) -> bool:
    soundfile = _checks.extra("soundfile", "train")
    try:
        return bool(soundfile.info(str(path)).frames > 0)
    except (OSError, RuntimeError):  # what soundfile raises for a file that is no sound
        return False


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
    try:
        with open_image(path) as image:
            image.load()
    except (OSError, SyntaxError, ValueError):  # PIL's errors for files that are cut short or no images
        return False
    return True
