"""Reading of arrays from files without executing code (no pickle)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from m3g import _checks
from m3g.data.storage import delimited, limits
from m3g.data.storage.matlab import Variables, load_matlab, select
from m3g.data.storage.numpy_files import Archive, load_npy

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow.parquet import ParquetFile

SUFFIXES = (".npy", ".npz", ".mat", ".csv", ".tsv", ".json", ".xlsx", ".parquet")


class ArrayFiles(contextlib.ExitStack):
    """Reader of array files; a file with several arrays is opened once, and closed with the reader."""

    def __init__(self) -> None:
        super().__init__()
        self._archives: dict[Path, Archive] = {}
        self._matlab: dict[Path, Variables] = {}
        self._parquet: dict[Path, ParquetFile] = {}

    def read(
        self,
        path: str | Path,
        *,
        name: str = "paths",
        text: bool = False,
        notes: list[str] | None = None,
        columns: list[str] | None = None,
    ) -> np.ndarray:
        """Read one array from an `.npy`, `.npz`, `.mat`, `.parquet`, `.json`, `.csv`, `.tsv` or `.xlsx` file.

        `.csv`, `.tsv` and `.xlsx` files have the column names in their first line. `file.npz:key` and `file.mat:X{2}`
        select one of several arrays. A sparse matrix saved by scipy is converted to dense.

        Args:
            path: the file.
            name: the argument that error messages refer to.
            text: allow columns of strings.
            notes: list to which notes on dropped and constant columns are appended. If given, columns that number or
                identify the rows are dropped, because they are not features. An index column that pandas wrote is
                always dropped.
            columns: list to which the names of the columns of a table are appended.
        """
        given, key = str(path), None
        if ".npz:" in given or ".mat:" in given:
            given, key = given.rsplit(":", 1)
        file = Path(given)
        if file.suffix.lower() not in SUFFIXES:
            raise ValueError(f"{name} must be files that end in {', '.join(SUFFIXES)}, got {given!r}.")
        if not file.is_file():
            raise ValueError(f"{name} must be files that exist, got {given!r}: check the path.")
        try:
            opened = self._open(file)
        except (OSError, EOFError, ValueError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            raise ValueError(f"{name} must be files that can be read, got {given!r} ({reason}).") from error
        if isinstance(opened, Archive):
            array = _pick(opened, key, file, name)
        elif isinstance(opened, np.ndarray):
            array = opened
        elif isinstance(opened, dict):
            return select(opened, key, file, name)
        else:
            array = _array_of_table(opened, file, name, text=text, notes=notes, columns=columns)
        if text and array.dtype == object and all(isinstance(entry, str) for entry in array.flat):
            return array.astype(str)
        if array.dtype == object:
            raise ValueError(f"{name} must have only numeric values, but {given!r} has others: encode them.")
        return array

    def _open(self, file: Path) -> np.ndarray | Archive | Variables | DataFrame:
        """Load an array or a table, or open a file of several arrays."""
        suffix = file.suffix.lower()
        if suffix == ".npy":
            return load_npy(file)
        if suffix == ".npz":
            if file not in self._archives:
                self._archives[file] = self.enter_context(Archive(file))
            return self._archives[file]
        if suffix == ".mat":
            if file not in self._matlab:
                self._matlab[file] = load_matlab(file)
            return self._matlab[file]
        _checks.extra("pandas", "train")
        if suffix in (".csv", ".tsv"):
            return _read_csv(file)
        if suffix in (".json", ".xlsx"):
            return _read_text_table(file)
        opened = self.parquet(file)
        limits.check_columns(opened.metadata.num_columns)
        limits.check_rows(opened.metadata.num_rows, file.stat().st_size)
        return opened.read().to_pandas()

    def parquet(self, file: Path) -> ParquetFile:
        """Return an open parquet file, whose metadata have been read."""
        if file not in self._parquet:
            opened = _checks.extra("pyarrow.parquet", "train").ParquetFile(file)
            self._parquet[file] = self.enter_context(opened)
        return self._parquet[file]


def file_names(paths: Sequence[str | Path]) -> list[str]:
    """Return a distinct name for each file: its stem or, if stems repeat, the name of its array.

    If neither is distinct, the names are `view0`, `view1` and so on.

    Example:
        >>> file_names(["x/a.npy", "b.npz:u"]), file_names(["c.mat:X{1}", "c.mat:X{2}"]), file_names(["a.npy", "a.csv"])
        (['a', 'b'], ['X1', 'X2'], ['view0', 'view1'])
    """
    stems = [Path(path).stem for path in paths]
    arrays = ["".join(filter(str.isalnum, str(path).rpartition(":")[2])) for path in paths]
    numbers = [f"view{l}" for l in range(len(paths))]
    name_arrays = all(":" in str(path) for path in paths)
    return next(names for names in (stems, arrays if name_arrays else stems, numbers) if len(set(names)) == len(names))


def _array_of_table(
    table: DataFrame, file: Path, name: str, *, text: bool, notes: list[str] | None, columns: list[str] | None
) -> np.ndarray:
    """Return the values of a table without its index; if `notes` are given, also without columns of row identifiers."""
    given = str(file)
    _check_header(table, file, name)
    table = _without_index(table, given, [] if notes is None else notes)
    if notes is not None:
        table = _features(table, given, notes)
    if len(table) == 0:
        raise ValueError(f"{name} must be files with at least one row, got none in {given!r}.")
    non_numeric = [str(column) for column, dtype in table.dtypes.items() if dtype.kind not in "biuf"]
    if non_numeric and not text:
        raise ValueError(
            f"{name} must have only numeric columns, but column {non_numeric[0]!r} of {given!r} is not numeric: "
            "remove or encode it."
        )
    if columns is not None:
        columns += map(str, table.columns)
    array: np.ndarray = table.to_numpy()
    if array.dtype == object and not non_numeric:  # numbers and booleans
        array = table.to_numpy(dtype=np.float64, na_value=np.nan)
    return array


def _read_csv(file: Path) -> DataFrame:
    """Read a delimited file; if the separator is not a comma, numbers may have decimal commas."""
    pandas = _checks.extra("pandas", "train")
    separator = ","
    try:
        with open(file, "rb") as content:
            separator, _ = delimited.read_names(content, file.suffix)
            table = pandas.read_csv(content, sep=separator)
            if separator != "," and any(kind.kind == "O" for kind in table.dtypes):
                content.seek(0)
                table = pandas.read_csv(content, sep=separator, decimal=",")
    except UnicodeError:
        delimited.check_encoding(file, separator)
        raise
    return table


def _read_text_table(file: Path) -> DataFrame:
    """Read a `.json` or `.xlsx` file; columns of a workbook are converted to numbers where possible."""
    from m3g.data.tables import text_tables

    if file.suffix.lower() == ".json":
        return text_tables.read_json(file).to_pandas()
    table = text_tables.read_workbook(file)[0].to_pandas()
    for column in table:
        with contextlib.suppress(ValueError):  # a column of words stays text
            table[column] = _checks.extra("pandas", "train").to_numeric(table[column])
    return table


def _without_index(table: DataFrame, given: str, notes: list[str]) -> DataFrame:
    """Drop an unnamed first column of distinct whole numbers, as pandas writes its index."""
    first = table.columns[0]
    if str(first) != "Unnamed: 0" or table[first].dtype.kind not in "iu" or not table[first].is_unique:
        return table
    notes.append(f"the first column of {given!r} is unnamed and numbers the rows; it is not used")
    return table.iloc[:, 1:]


def _features(table: DataFrame, given: str, notes: list[str]) -> DataFrame:
    """Drop columns of row numbers or identifiers, unless all are; add notes on them and on constant columns."""
    from m3g.data.tables.kinds import Guess

    kept, dropped = [], []
    for column in table.columns:
        cells = table[column]
        reason = None
        if cells.dtype.kind in "iu" and cells.is_unique:
            guess = Guess(str(column))
            guess.update(0, cells.tolist())
            reason = guess.exclusion(len(table))
        if reason is None:
            kept.append(column)
        else:
            dropped.append(f"column {column!r} of {given!r} {reason} and is not used (use an .npy file to keep it)")
    if not kept:
        return table
    notes += dropped
    constant = [str(column) for column in kept if len(table) > 1 and table[column].nunique(dropna=False) == 1]
    if len(constant) == 1:
        notes.append(f"column {constant[0]!r} of {given!r} is constant and carries no information")
    elif constant:
        notes.append(
            f"{len(constant)} columns of {given!r} are constant and carry no information, such as {constant[0]!r}"
        )
    return table[kept]


def _pick(stored: Archive, key: str | None, file: Path, name: str) -> np.ndarray:
    """Return the array `key` of an archive, or its only array or sparse matrix if `key` is None."""
    names = ", ".join(stored.files)
    if key is None and not stored.is_sparse and len(stored.files) != 1:
        raise ValueError(
            f"{name} must be files with one array, got {names or 'none'} in {str(file)!r}: "
            f"choose one with '{file}:{(stored.files or ['key'])[0]}'."
        )
    if key is not None and key not in stored.files:
        raise ValueError(f"{name} must name an array of {str(file)!r} ({names}), got {key!r}.")
    try:
        return stored.dense() if key is None and stored.is_sparse else stored[key or stored.files[0]]
    except (OSError, ValueError, TypeError, KeyError) as error:  # the last two: damaged sparse matrix
        raise ValueError(
            f"{name} must be files that can be read without pickle, got {str(file)!r} ({error})."
        ) from error


def _check_header(table: DataFrame, file: Path, name: str) -> None:
    """Reject a delimited file without a header line, whose first row would be lost, or with too few names."""
    if file.suffix.lower() not in (".csv", ".tsv"):
        return
    columns = [str(column) for column in table.columns]
    if table.index.nlevels > 1 or table.index.dtype.kind not in "iu" or (table.index != np.arange(len(table))).any():
        # pandas uses the first cells as an index if lines have more cells than there are names
        raise ValueError(
            f"{name} must be tables with one name per column, got lines with more cells than the {len(columns)} "
            f"names in {str(file)!r}: write numbers with a decimal point, or separate the cells by semicolons."
        )
    numbered = columns == [str(c) for c in range(len(columns))]  # the names that pandas writes by default
    if not numbered and all(_is_number(column) for column in columns):
        raise ValueError(
            f"{name} must be .csv or .tsv files whose first line has the column names, got numbers in {str(file)!r}: "
            "add such a line."
        )


def _is_number(text: str) -> bool:
    """Return whether a column name is a number."""
    try:
        float(text)
    except ValueError:
        # pandas adds a suffix to a repeated name: "1.5" and "1.5.1"
        return text.count(".") > 1 and _is_number(text.rpartition(".")[0])
    return True
