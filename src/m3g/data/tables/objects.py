"""Data module of a table of objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from m3g import _checks
from m3g._options import Options, Processor
from m3g.data.base import ViewsData, class_codes
from m3g.data.splits import Split, given_split, split_rows
from m3g.data.storage.readers import ArrayFiles
from m3g.data.tables.columns import file_column, read_columns, set_up
from m3g.data.tables.file_readers import FileReader
from m3g.data.tables.plan import plan_views
from m3g.data.tables.source import Source, open_table


class Objects(ViewsData):
    """A table of objects, with one row per object and views of images, sounds, text, vectors or numbers.

    The table is a `.csv`, `.tsv`, `.json`, `.jsonl`, `.xlsx`, `.parquet` or `.arrow` file, a single-cell file (`.h5mu`,
    `.h5ad`), a folder of `.parquet` files, or a folder saved by the Hugging Face library `datasets`. Each column of
    images or sounds (paths relative to the table, or file contents), of text, or of lists of numbers is a view. All
    columns of numbers, dates and categories form one more view, named `table`. An empty cell is a missing entry; an
    entry of the view `table` is missing if all its cells are empty. The kinds of columns are inferred; `view` overrides
    them. A damaged image or sound is treated as missing and reported in a warning; more than 1 % of damaged files raise
    an error.

    Args:
        table: the file or folder, or an open table.
        paths: additional views: array files with one row per row of the table.
        labels: the column of class labels; used only for evaluation and to stratify the split.
        groups: the column of groups, such as subjects; each group is in one split only.
        split: the column with the values train, val or test; without it, the splits of a `datasets` folder are used or,
            if there are none, `val` and `test`.
        ignore: columns that are not views.
        view: per view, its options: `kind` (image, audio, text, vector, table), `columns` if there are several or the
            view is not named after its column, `size` of images in pixels, `rate` and `seconds` of sounds, `length` of
            text in bytes or tokens, `components` of TF-IDF, `encoder` and `processor` as below.
        processor: preprocessing of a pretrained model (`m3g.nets.processor_of`), for views that `view` does not name;
            `m3g train` sets it for the encoder `transformers`.
        encoder: the encoder of views without an `encoder` in `view`. With `tfidf`, text is read as TF-IDF; with another
            encoder, as tokens if there is a `processor`, and as bytes otherwise. None means `tfidf` in tables of fewer
            than 20 000 rows unless `length` or a `processor` is set, and another encoder otherwise.
        batch_size: objects per step and process; None means 64, or all training rows of a process if there are fewer.
        val, test: fractions of the rows (with `groups`, of the groups) held out; the rest is for training.
        split_seed: seed of the split.
        seed: seed of the training order.
        standardize: standardise vectors and `paths`; if false, they are unchanged.
        duplicates: allow rows that are equal in every view; always allowed with `paths`.
        allow_outside: allow images and sounds outside the folder of the table, reached by absolute paths, `..` or
            symbolic links.
        data_root: folder of images and sounds that are not in the folder of the table; a file is searched there first,
            by the last parts of its path.
        num_workers: processes that read files and prepare batches.
    """

    def __init__(
        self,
        table: str | Path | Source,
        *,
        paths: Sequence[str | Path] = (),
        labels: str | None = None,
        groups: str | None = None,
        split: str | None = None,
        ignore: Sequence[str] = (),
        view: Mapping[str, Options] | None = None,
        processor: Processor | None = None,
        encoder: str | None = None,
        batch_size: int | None = None,
        val: float = 0.1,
        test: float = 0.2,
        split_seed: int = 0,
        seed: int = 0,
        standardize: bool = True,
        duplicates: bool = False,
        allow_outside: bool = False,
        data_root: str | None = None,
        num_workers: int = 0,
    ):
        super().__init__(batch_size=batch_size, seed=seed, num_workers=num_workers)
        source = table if isinstance(table, Source) else open_table(table, data_root=data_root)
        ignore = [*ignore, *(column for column in source.annotations if column not in (labels, groups, split))]
        named = [("labels", labels), ("groups", groups), ("split", split), *(("ignore", column) for column in ignore)]
        special = {_checks.one_of(option, column, source.types) for option, column in named if column is not None}
        codes = None
        if labels is not None:
            self.class_names, codes = class_codes(_filled(source, labels, "labels"))
        rows = self._rows(source, codes, groups, split, val=val, test=test, seed=split_seed)
        train = np.zeros(source.num_rows, dtype=bool)
        train[rows["train"]] = True
        readers = plan_views(source, view or {}, special, more=len(paths), processor=processor, encoder=encoder)
        for reader in readers:
            if isinstance(reader, FileReader):
                reader.allow_outside = allow_outside
        columns = read_columns(source, readers, train, duplicates=duplicates or bool(paths))
        with ArrayFiles() as files:
            columns += [file_column(path, files, len(train), [column.name for column in columns]) for path in paths]
        set_up(self, columns, codes, rows, standardize=standardize)
        self.view_kinds = [column.kind for column in columns]
        self.inputs = [column.reader.recipe() for column in columns]
        self.input_tensors = [column.reader.tensors() for column in columns]
        self.notes = [*source.notes, *(note for column in columns for note in column.reader.notes)]

    def _rows(
        self,
        source: Source,
        codes: torch.Tensor | None,
        groups: str | None,
        split: str | None,
        *,
        val: float,
        test: float,
        seed: int,
    ) -> dict[Split, np.ndarray]:
        """Return the rows of every split, from a column, the splits of a `datasets` folder, or the fractions."""
        members = None if groups is None else _filled(source, groups, "groups").astype(str)
        if split is not None or source.splits:
            names = [name for name, count in source.splits for _ in range(count)]
            return given_split(names if split is None else source.column(split), members)
        classes = None if codes is None else codes.numpy()
        return split_rows(source.num_rows, val=val, test=test, seed=seed, labels=classes, groups=members)


def _filled(source: Source, column: str, option: str) -> np.ndarray:
    """Return a column; raise if it has an empty cell."""
    values = source.column(column)
    empty = next((row for row, value in enumerate(values) if value is None or value == ""), None)
    if empty is not None:
        raise ValueError(f"{option} must be a column without empty cells, got one in row {empty} of {column!r}.")
    return np.array(values)
