"""Reading arrays from files, without ever running code they contain (no pickle)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from m3g import _checks

SUFFIXES = (".npy", ".npz", ".csv", ".parquet")


def read_array(path: str | Path, *, name: str = "paths") -> np.ndarray:
    """One array from an `.npy`, `.npz` (with one array), `.csv` (with a header line) or `.parquet` file.

    `file.npz:key` picks one array of several.
    """
    text, key = str(path), None
    if ".npz:" in text:
        text, key = text.rsplit(":", 1)
    file = Path(text)
    if file.suffix not in SUFFIXES:
        raise ValueError(f"{name} takes files that end in {', '.join(SUFFIXES)}, got {text!r}.")
    if not file.is_file():
        raise ValueError(f"{name} takes files that exist, got {text!r}: check the path.")
    try:
        if file.suffix in (".npy", ".npz"):
            array = _read_numpy(file, key, name)
        else:
            pandas = _checks.extra("pandas", "train")
            table = pandas.read_csv(file) if file.suffix == ".csv" else pandas.read_parquet(file)
            array = table.to_numpy()
    except (OSError, EOFError) as error:
        raise ValueError(f"{name} takes readable files, got {text!r} ({error}).") from error
    if array.dtype == object:
        raise ValueError(f"{name} takes numbers only, got a column of another kind in {text!r}: remove or encode it.")
    return array


def _read_numpy(file: Path, key: str | None, name: str) -> np.ndarray:
    try:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            if key is None and len(loaded.files) != 1:
                raise ValueError(
                    f"{name} takes one array per file, got {', '.join(loaded.files)} in {str(file)!r}: "
                    f"choose with '{file}:{(loaded.files or ['key'])[0]}'."
                )
            if key is not None and key not in loaded.files:
                raise ValueError(f"{name} takes one of {', '.join(loaded.files)} of {str(file)!r}, got {key!r}.")
            return loaded[key or loaded.files[0]]
    except ValueError as error:
        if str(error).startswith(name):
            raise
        # Pickled objects, or a file that is not what its name says.
        raise ValueError(
            f"{name} takes arrays of numbers without pickled objects, got {str(file)!r} which numpy refuses "
            f"({str(error).splitlines()[0].rstrip('.')})."
        ) from error
