"""Assignment of the columns of a table to views and kinds, set by the user or inferred from the cells."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from m3g import _checks
from m3g._catalogue import READERS
from m3g._options import Options, Processor
from m3g.data.tables.kinds import Guess, kind_of_type
from m3g.data.tables.reader import Reader
from m3g.data.tables.source import Source

MODEL = "sentence-transformers/all-MiniLM-L6-v2"  # example of a pretrained model in a note
FEW_TEXTS = 20_000  # with fewer rows, text is read as TF-IDF by default
COMMON_OPTIONS = {"kind", "processor", "encoder", "fitted"}  # of every kind, except `fitted` (only tfidf)


def plan_views(
    source: Source,
    view: Mapping[str, Options],
    special: set[str],
    *,
    more: int,
    processor: Processor | None = None,
    encoder: str | None = None,
) -> list[Reader]:
    """Return one reader per view of a table.

    Args:
        source: the table.
        view: per view, the options set by the user.
        special: columns that are not views.
        more: number of views from other files.
        processor: preprocessing of a pretrained model, for views that `view` does not name.
        encoder: encoder of the views without an `encoder` in `view`.
    """
    default: dict[str, object] = {} if processor is None else {"processor": processor}
    given = {name: dict(options) for name, options in view.items()}
    taken = set(special)
    readers: dict[str, Reader] = {}
    for name, options in given.items():
        columns = _columns(name, options.pop("columns", None), source)
        if columns is None and name not in source.types:
            continue  # a view from another file, or an unknown name, which is reported later
        columns = columns or [name]
        reused = sorted(taken & set(columns))
        if reused:
            raise ValueError(f"view.{name}.columns must be columns that are not in use, got {reused[0]!r}.")
        if "kind" in options or len(columns) > 1:
            kind = _checks.one_of(f"view.{name}.kind", options.pop("kind", "table"), READERS)
            readers[name] = _reader(_text_kind(kind, options, encoder, source), name, columns, options)
            taken |= set(columns)
    kinds = infer(source, [column for column in source.types if column not in taken])
    scalars = [column for column, kind in kinds.items() if kind in ("number", "category", "date")]
    for column in kinds:
        if column not in scalars:
            chosen = given.get(column, default)
            kind = _text_kind(kinds[column], chosen, encoder, source)
            readers[column] = _reader(kind, column, [column], chosen)
    if scalars:
        names = itertools.chain(("table", "numbers"), (f"numbers_{i}" for i in itertools.count(2)))
        name = next(name for name in names if name not in readers)
        readers[name] = _reader("table", name, scalars, given.get(name, {}))
    if len(readers) + more < 2:
        raise ValueError(
            f"table must have k >= 2 views, got {len(readers)}"
            + (f" ({', '.join(readers)})" if readers else "")
            + ": set view.NAME.columns to split numbers into views"
            + "".join(f" ({note})" for note in source.notes if "is not used" in note)
            + "."
        )
    _note_few_texts(list(readers.values()), source)
    order = list(source.types)
    return sorted(readers.values(), key=lambda reader: order.index(reader.columns[0]))


def infer(source: Source, columns: Sequence[str]) -> dict[str, str]:
    """Return the kind of every column that is a feature: image, audio, text, vector, number, date or category.

    Columns that number or identify the rows, that are empty, or that have ambiguous dates are skipped with a note.
    """
    known = {column: kind_of_type(source.types[column]) for column in columns}
    guesses = {column: Guess(column) for column in columns if known[column] != "vector"}
    inspected = [column for column, guess in guesses.items() if known[column] is None or guess.open]
    if inspected:
        for start, batch in source.batches(inspected):
            for column in inspected:
                if known[column] is None or guesses[column].open:
                    guesses[column].update(start, batch[column].to_pylist())
    kinds = {}
    for column in columns:
        reason = guesses[column].exclusion(source.num_rows) if column in guesses else None
        if reason is not None:
            can_be_kept = column.isidentifier() and guesses[column].count
            keep = f" (set --view.{column}.kind to keep it)" if can_be_kept else ""
            source.notes.append(f"column {column!r} {reason} and is not used{keep}")
            continue
        kind = known[column] or guesses[column].kind()
        if kind == "date":
            source.notes.append(f"column {column!r} has dates, which are read as days since 1970-01-01")
        if kind in ("text", "category") and guesses[column].numeric:
            cell = guesses[column].first["text"][1]
            source.notes.append(
                f"column {column!r} has numbers with separators or units ({cell!r}), which are read as "
                f"{'text' if kind == 'text' else 'categories'}: write plain numbers"
            )
        kinds[column] = kind
    return kinds


def _text_kind(kind: str, options: Options, encoder: str | None, source: Source) -> str:
    """Return the kind of the reader, which is tfidf instead of text if the encoder is tfidf.

    Without an encoder, text is also read as tfidf if there are few rows and neither `length` nor `processor` is set.
    """
    encoder = options.get("encoder", encoder)
    if kind != "text" or (encoder is None and not {"length", "processor"}.isdisjoint(options)):
        return kind
    return "tfidf" if encoder == "tfidf" or (encoder is None and source.num_rows < FEW_TEXTS) else "text"


def _note_few_texts(readers: Sequence[Reader], source: Source) -> None:
    """Add a note if there are too few texts to train an encoder, with the options for other encoders."""
    for kind in ("tfidf", "text"):
        names = [reader.name for reader in readers if reader.kind == kind and not reader.processor]
        if not names or source.num_rows >= FEW_TEXTS:
            continue
        view, which = f"--view.{names[0]}", ", ".join(map(repr, names))
        use = "read as TF-IDF" if kind == "tfidf" else f"encoded from scratch ({view}.encoder tfidf uses TF-IDF)"
        other = f"{view}.encoder text trains one from scratch; " if kind == "tfidf" else ""
        source.notes.append(
            f"text of {which} is {use}: {source.num_rows:,} texts are few for an encoder trained from scratch, "
            f"which requires about {FEW_TEXTS:,}; {other}{view}.encoder transformers {view}.model {MODEL} "
            f"{view}.pretrained true uses a pretrained one"
        )


def _columns(name: str, given: str | Sequence[str] | None, source: Source) -> list[str] | None:
    """Return the columns that the user has set for a view, validated; None if none are set."""
    if given is None:
        return None
    columns = [column.strip() for column in given.split(",")] if isinstance(given, str) else list(given)
    for column in columns:
        _checks.one_of(f"view.{name}.columns", column, source.types)
    return columns


def _reader(kind: str, name: str, columns: Sequence[str], options: Options) -> Reader:
    """Return the reader of a view; raise if its options or columns do not fit its kind."""
    reader: type[Reader] = READERS[kind].load()
    unknown = sorted(set(options) - set(reader.options) - COMMON_OPTIONS)
    if unknown:
        known = ", ".join(option for option in reader.options if option != "columns") or "none"
        raise ValueError(f"view.{name} must have only options of the kind {kind} ({known}), got {unknown[0]}.")
    if kind != "table" and len(columns) > 1:
        raise ValueError(f"view.{name}.columns must be one column for the kind {kind}, got {len(columns)}.")
    kept = {option: value for option, value in options.items() if option not in ("kind", "encoder")}
    return reader(name, columns, **kept)
