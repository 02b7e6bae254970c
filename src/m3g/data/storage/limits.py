"""Limits for untrusted files: the size that a file declares is checked before memory of that size is allocated."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from m3g import _checks
from m3g.solvers.shared.memory import memory_limit

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_COLUMNS = 50_000  # of a table, because the time to read a table grows with its number of columns
MAX_HEADER_LENGTH = 2**24  # characters of a header line
MAX_PIXELS = 89_478_485  # of an image: the number above which PIL warns
ROW_BYTES = 64  # memory of a row besides its views: splits, order, labels, fingerprint
FEW_CELLS = 2**24  # tables of at most this many cells may be nearly empty
FEW_ROWS = 10**6  # tables of at most this many rows may consist of repeated rows


def parse_json(text: str) -> Any:
    """Parse JSON; also raise a `JSONDecodeError` for text that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", text[:1], 0) from None


def check_memory(what: str, size: int) -> None:
    """Reject an array that does not fit into memory."""
    _checks.fits(what, size, memory_limit(torch.device("cpu")), "use a smaller array")


def check_columns(number: int) -> None:
    if number > MAX_COLUMNS:
        raise OSError(f"it has at least {number} columns, which is more than {MAX_COLUMNS}: keep fewer columns")


def check_cells(rows: int, columns: int, size: int) -> None:
    """Reject a large table of mostly empty cells, which has far more cells than bytes in its file."""
    if rows * columns > max(FEW_CELLS, 64 * size):
        raise OSError(
            f"its {rows} rows have {columns} columns, nearly all of them empty: use the same column names in all rows"
        )


def check_rows(rows: int, size: int) -> None:
    """Reject rows that do not fit into memory, and a large table whose file has less than one bit per row."""
    if rows > FEW_ROWS and rows > 8 * size:
        raise OSError(f"it has {rows} rows in {size} bytes, so nearly all rows are equal: remove the repeated rows")
    if ROW_BYTES * rows > memory_limit(torch.device("cpu")):
        raise OSError(f"it has {rows} rows, which do not fit into memory: use fewer rows")


def check_pixels(image: Image) -> None:
    """Reject an image with too many pixels; it must be open but not yet decoded."""
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise OSError(f"{width} x {height} pixels, which is more than {MAX_PIXELS}")


def open_image(file: Path | BinaryIO) -> Image:
    """Open an image with PIL; an image with too many pixels raises an `OSError`, regardless of warning filters."""
    module = _checks.extra("PIL.Image", "train")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", module.DecompressionBombWarning)
            image: Image = module.open(file)
    except module.DecompressionBombError as error:
        raise OSError(f"too many pixels: {error}") from error
    try:
        check_pixels(image)
    except OSError:
        image.close()
        raise
    return image


MAX_TENSORS_HEADER = 2**23  # bytes of the header of a safetensors file: about 10^5 tensors


def check_safetensors(content: bytes) -> None:
    """Reject a safetensors file with a long header, which is slow to parse."""
    header = int.from_bytes(content[:8], "little")
    if header > MAX_TENSORS_HEADER:
        raise ValueError(f"its header has {header} bytes, which is more than {MAX_TENSORS_HEADER}")
