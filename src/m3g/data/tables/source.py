"""Tables on disk, read in batches of rows: files, a folder of parquet files, a `datasets` folder."""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3g import _checks
from m3g.data.storage import limits
from m3g.data.storage.moved import Folders
from m3g.data.tables import omics, text_tables

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

BATCH = 1024  # rows read at a time
MAX_VALUES, MAX_BYTES = 2**20, 2**23  # read at a time if rows are long
BUFFER = 2**18  # bytes of a column read from a file at a time
SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".xlsx", ".parquet", ".arrow", *omics.SUFFIXES)


@dataclass
class Source:
    """A table: its columns with pyarrow types, its number of rows, and batched access.

    Attributes:
        path: path of the table, as given by the user.
        folders: where to search for the files that cells refer to.
        types: per column, its type.
        num_rows: number of rows.
        parts: per file, a function that yields record batches of the columns that are passed to it.
        splits: name and number of rows of every split of a `datasets` folder; empty if there are no splits.
        annotations: columns that can be labels, groups or splits but never views: `obs` of a single-cell file.
        notes: one sentence per property that was inferred from the file.
    """

    path: Path
    folders: Folders
    types: dict[str, pa.DataType]
    num_rows: int
    parts: list[Callable[[list[str]], Iterator[pa.RecordBatch]]]
    splits: list[tuple[str, int]] = field(default_factory=list)
    annotations: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        """Yield the number of the first row and the columns of every batch, in order."""
        start = 0
        for part in self.parts:
            for batch in part(list(columns)):
                if batch.num_rows:
                    yield start, dict(zip(columns, batch.columns))
                    start += batch.num_rows

    def rows(self, columns: Sequence[str], numbers: Sequence[int]) -> dict[int, dict[str, object]]:
        """Return the cells of the given rows, by row number and column name."""
        selected, cells = set(numbers), {}
        for start, batch in self.batches(columns):
            for i in range(len(batch[columns[0]])) if columns else ():
                if start + i in selected:
                    cells[start + i] = {name: batch[name][i].as_py() for name in columns}
        return cells

    def column(self, name: str) -> list[object]:
        """Return a whole column as Python values."""
        return [value for _, batch in self.batches([name]) for value in batch[name].to_pylist()]


def open_table(
    path: str | Path, *, name: str = "table", data_root: str | Path | None = None, parquet: ParquetFile | None = None
) -> Source:
    """Open the table at a path; raise a one-sentence error if it is not a table.

    Files that its cells refer to are searched below `data_root` first. `parquet` is the file if it is already open.
    """
    arrow = _checks.extra("pyarrow", "train")
    file = _checks.existing(name, path)
    if not file.is_dir() and file.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{name} must be a folder or a file that ends in {', '.join(SUFFIXES)}, got {str(path)!r}.")
    try:
        source = _open_folder(file, name) if file.is_dir() else _open_file(file, parquet)
    except (arrow.ArrowException, OSError, UnicodeError, csv.Error, json.JSONDecodeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(f"{name} must be a table that can be read, got {str(path)!r} ({reason}).") from error
    if source.num_rows == 0:
        raise ValueError(f"{name} must have at least one row, got none in {str(path)!r}.")
    if data_root is not None:
        source.folders = replace(source.folders, root=Path(data_root))
    return source


def _open_file(file: Path, parquet: ParquetFile | None = None) -> Source:
    """Open a table in a single file, by its suffix."""
    suffix = file.suffix.lower()
    if suffix in omics.SUFFIXES:
        types, views, number, batches = omics.open_omics(file)
        annotations = [name for name in types if name not in views]
        return Source(file, Folders(file.parent), types, number, [batches], annotations=annotations)
    notes: list[str] = []
    if suffix in (".csv", ".tsv", ".xlsx"):
        read = text_tables.read_workbook if suffix == ".xlsx" else text_tables.read_csv
        content, notes = read(file)
    elif suffix in (".json", ".jsonl"):
        content = (text_tables.read_json if suffix == ".json" else text_tables.read_jsonl)(file)
    else:
        return _parquet(file, parquet) if suffix == ".parquet" else _arrow(file)
    return _in_memory(file, content, notes)


def _open_folder(folder: Path, name: str) -> Source:
    """Open a folder of `.parquet` files, or one saved by `datasets`, with or without splits."""
    if (folder / "dataset_dict.json").is_file():  # written by `datasets` for a data set with splits
        splits = [str(split) for split in _stored_list(folder / "dataset_dict.json", "splits")]
        if any(Path(split).name != split for split in splits):
            raise OSError("dataset_dict.json refers to folders outside its folder")
        parts = [_joined(folder / split, _stored_files(folder / split), name) for split in splits]
        joined = _join(folder, parts, name)
        joined.splits = [(split, part.num_rows) for split, part in zip(splits, parts)]
        return joined
    files = _stored_files(folder) if (folder / "state.json").is_file() else sorted(folder.rglob("*.parquet"))
    return _joined(folder, files, name)


def _stored_files(folder: Path) -> list[Path]:
    """Return the files of a data set saved by `datasets`, in order."""
    entries = _stored_list(folder / "state.json", "_data_files")
    if not all(isinstance(entry, dict) and "filename" in entry for entry in entries):
        raise OSError("state.json must have a filename for every file")
    files = [folder / str(entry["filename"]) for entry in entries]
    if any(file.parent != folder for file in files):
        raise OSError("state.json refers to files outside its folder")
    return files


def _stored_list(file: Path, key: str) -> list[Any]:
    """Return the list `key` of a JSON file written by `datasets`."""
    content = limits.parse_json(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not isinstance(content.get(key), list):
        raise OSError(f"{file.name} must have a list {key!r}")
    return content[key]


def _joined(folder: Path, files: Sequence[Path], name: str) -> Source:
    if not files:
        raise ValueError(
            f"{name} must be a folder of .parquet files or one saved by datasets, got neither in {str(folder)!r}."
        )
    return _join(folder, [_open_file(file) for file in files], name)


def _join(folder: Path, parts: Sequence[Source], name: str) -> Source:
    """Return the concatenation of tables with the same columns."""
    first = parts[0]
    for part in parts:
        if set(part.types) != set(first.types):
            different = sorted(set(part.types) ^ set(first.types))[0]
            raise ValueError(
                f"{name} must be files with the same columns, got {different!r} in only one of {str(first.path)!r} and "
                f"{str(part.path)!r}."
            )
    batches = [function for part in parts for function in part.parts]
    return Source(folder, Folders(folder), first.types, sum(part.num_rows for part in parts), batches)


def _in_memory(file: Path, table: pa.Table, notes: list[str]) -> Source:
    def batches(columns: list[str]) -> Iterator[pa.RecordBatch]:
        yield from table.select(columns).combine_chunks().to_batches(max_chunksize=BATCH)

    types = dict(zip(table.schema.names, table.schema.types))
    return Source(file, Folders(file.parent), types, table.num_rows, [batches], notes=notes)


def _parquet(file: Path, given: ParquetFile | None) -> Source:
    """Open a parquet file; batches and buffers are small, because a row group may be the whole file."""
    parquet = _checks.extra("pyarrow.parquet", "train")
    with contextlib.nullcontext(given) if given is not None else parquet.ParquetFile(file) as opened:
        metadata, schema = opened.metadata, opened.schema_arrow
    limits.check_columns(metadata.num_columns)
    rows = metadata.num_rows
    limits.check_rows(rows, file.stat().st_size)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    values = sum(group.column(i).num_values for group in groups for i in range(group.num_columns))
    content = sum(group.total_byte_size for group in groups)
    size = max(1, min(BATCH, MAX_VALUES * rows // max(values, 1), MAX_BYTES * rows // max(content, 1)))

    def batches(columns: list[str]) -> Iterator[pa.RecordBatch]:
        with parquet.ParquetFile(file, metadata=metadata, buffer_size=BUFFER, pre_buffer=False) as opened:
            yield from (batch.select(columns) for batch in opened.iter_batches(size, columns=columns))

    return Source(file, Folders(file.parent), dict(zip(schema.names, schema.types)), rows, [batches])


def _arrow(file: Path) -> Source:
    """Open an Arrow file by a memory map, in the file format or the stream format; `datasets` writes the latter."""
    arrow = _checks.extra("pyarrow", "train")

    def stored() -> Iterator[pa.RecordBatch]:
        with arrow.memory_map(str(file)) as content:
            start = content.read(6)
            content.seek(0)
            if start == b"ARROW1":
                opened = arrow.ipc.open_file(content)
                yield from (opened.get_batch(i) for i in range(opened.num_record_batches))
            else:
                yield from arrow.ipc.open_stream(content)

    with arrow.memory_map(str(file)) as content:
        start = content.read(6)
        content.seek(0)
        schema = (arrow.ipc.open_file if start == b"ARROW1" else arrow.ipc.open_stream)(content).schema
    limits.check_columns(len(schema))
    rows = sum(batch.num_rows for batch in stored())
    limits.check_rows(rows, file.stat().st_size)

    def batches(columns: list[str]) -> Iterator[pa.RecordBatch]:
        for batch in stored():
            part = batch.select(columns)
            step = max(1, min(BATCH, MAX_BYTES * part.num_rows // max(part.nbytes, 1)))
            yield from (part.slice(start, step) for start in range(0, part.num_rows, step))

    return Source(file, Folders(file.parent), dict(zip(schema.names, schema.types)), rows, [batches])
