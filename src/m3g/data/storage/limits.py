"""Limits for untrusted files: the size that a file declares is checked before memory of that size is allocated."""

from __future__ import annotations

import json
import math
import os
import warnings
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import numpy as np
import torch
from numpy.lib.npyio import NpzFile

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
    """Reject rows that do not fit into memory, and large numbers of rows with less than one bit each in their file."""
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


def load_array_or_archive(file: str | os.PathLike[str]) -> np.ndarray | NpzFile:
    """Load an `.npy` file or open an `.npz` archive, without pickle; an `.npy` file is opened only once.

    An array larger than its file or than the memory is rejected before it is loaded.
    """
    with open(file, "rb") as content:
        if not zipfile.is_zipfile(content):
            content.seek(0)
            shape, fortran, dtype = _read_header(content, in_memory=True)
            flat = np.fromfile(content, dtype, count=math.prod(shape))
            return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
    return open_archive(file)


def map_array(file: str | os.PathLike[str]) -> np.memmap:
    """Map an `.npy` file into memory, without pickle."""
    with open(file, "rb") as content:
        shape, fortran, dtype = _read_header(content, in_memory=False)
        return np.memmap(content, dtype, mode="r", offset=content.tell(), shape=shape, order="F" if fortran else "C")


def _read_header(content: IO[bytes], *, in_memory: bool) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return shape, whether the order is that of Fortran, and dtype of an open `.npy` file; reject Python objects."""
    try:
        shape, fortran, dtype = _check_array(content, os.fstat(content.fileno()).st_size, in_memory=in_memory)
    except EOFError as error:
        raise OSError(f"damaged: {error}") from error
    if dtype.hasobject:
        raise ValueError("it contains Python objects, which require pickle")
    return shape, fortran, dtype


def open_archive(file: str | os.PathLike[str]) -> NpzFile:
    """Open an `.npz` archive without pickle; reject arrays larger than their file or than the memory."""
    try:
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".npy"):
                    with archive.open(member) as content:
                        _check_array(content, member.file_size, in_memory=True)
    except (EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise OSError(f"damaged: {error}") from error
    opened: NpzFile = np.load(file, allow_pickle=False)
    return opened


def _check_array(content: IO[bytes], size: int, *, in_memory: bool) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return the header of an array; reject an array larger than its file or, if `in_memory`, than the memory."""
    if content.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
        raise ValueError("damaged, or not an .npy array")
    version = content.read(2)
    read = {
        b"\x01\x00": np.lib.format.read_array_header_1_0,
        b"\x02\x00": np.lib.format.read_array_header_2_0,
        b"\x03\x00": np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"damaged, or of an unknown version {tuple(version)}")
    shape, fortran, dtype = read(content)
    if dtype.hasobject:
        return shape, fortran, dtype  # rejected by the caller and by np.load without pickle
    declared = dtype.itemsize * int(np.prod([int(n) for n in shape], dtype=object)) if shape else dtype.itemsize
    if declared > size:
        raise ValueError(f"damaged: an array of shape {shape} in {size} bytes")
    if in_memory:
        check_memory(f"an array of shape {shape}", declared)
    return shape, fortran, dtype


MAX_TENSORS_HEADER = 2**23  # bytes of the header of a safetensors file: about 10^5 tensors


def check_safetensors(content: bytes) -> None:
    """Reject a safetensors file with a long header, which is slow to parse."""
    header = int.from_bytes(content[:8], "little")
    if header > MAX_TENSORS_HEADER:
        raise ValueError(f"its header has {header} bytes, which is more than {MAX_TENSORS_HEADER}")
