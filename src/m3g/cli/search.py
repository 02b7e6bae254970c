"""`m3g search`: the objects nearest to a query in any of the views."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from m3g import _values as checks
from m3g.cli.output import check_out, print_table
from m3g.cli.parser import Parser

if TYPE_CHECKING:
    from torch import Tensor

    from m3g.data.tables.source import Source
    from m3g.evaluation import Embedded
    from m3g.training.runs.folder import Run

# Maximum numbers of printed lines, of characters per printed cell, and of columns of the table without --show.
SHOWN, CHARACTERS, COLUMNS = 40, 40, 5

USAGE = {"search": "RUN --query ROW|VIEW=VALUE [...] [options]"}
DESCRIPTION = {
    "search": """Find the objects of a run's data that are nearest to a query, given in one or several of the views.

  m3g search runs/m3g-1 --query 17                             row 17 of the data, by all its views
  m3g search runs/m3g-1 --query 17 42 --by pixels zernike      rows 17 and 42, by two of their views
  m3g search runs/m3g-1 --query caption="a grey owl"           a text, for a run trained on a table
  m3g search runs/m3g-1 --query photo=owl.png weight=1.2 --out page.html   one object in two views; page with thumbnails
  m3g search runs/m3g-1 --query pixels=new.npy                 new objects with one view, one per row of the file
  m3g search runs/m3g-1 --query pixels=new.npy fourier=f.npy --out table.csv

Queries and objects are represented by the mean of the unit embeddings of their views (--by selects the views of the
query, --in those of the objects); similarity is the cosine. For runs trained with the cost product or the loss
m3g-rest, the views of a query are combined by their product instead, and compared with the views that the query lacks
(if it has all views, each view is compared with the product of the others).
A row is not its own neighbour unless --itself is true. Embeddings are stored in the run folder and reused until the
network or the data change. The search is exact; --approximate uses a faiss index (pip install 'm3g[search]')."""
}


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument("run", type=str, help="the folder of a finished run")
    parser.add_argument(
        "--query", type=str, nargs="+", required=True, help="rows of the data, or VIEW=VALUE for a new object"
    )
    parser.add_argument("--by", type=str, nargs="+", default=None, help="views of the query to use; by default all")
    parser.add_argument(
        "--in", type=str, nargs="+", default=None, help="views of the objects that are compared; by default all"
    )
    parser.add_argument("--top", type=int, default=10, help="number of objects per query")
    parser.add_argument("--split", type=str, default="all", help="search in train, val, test or all")
    parser.add_argument("--itself", type=bool, default=False, help="include the query row in its own results")
    parser.add_argument("--approximate", action="store_true", help="use an approximate index")
    parser.add_argument("--show", type=str, nargs="+", default=None, help="columns of the run's table to print")
    parser.add_argument("--out", type=str, default=None, help="a new .csv file, or an .html file with thumbnails")
    parser.add_run_options()


def run(args: Namespace, name: str) -> None:
    import torch

    from m3g.evaluation.search import search
    from m3g.training.loop.build import build_loss
    from m3g.training.runs.collection import collection
    from m3g.training.runs.embed import SPLITS
    from m3g.training.runs.files import write_csv

    out = check_out(args.out, ".csv", ".html")
    checks.positive_int("--top", args.top)
    checks.one_of("--split", args.split, SPLITS)
    shown = _Cells.select(args.run, args.show)
    objects = collection(args.run, trust=args.trust)
    assert objects.embeddings is not None
    assert objects.index is not None
    by, among = (_view_mask(option, getattr(args, option), objects.view_names or ()) for option in ("by", "in"))
    queries, query_positions = _queries(args, objects, by)
    assert queries.embeddings is not None
    assert queries.index is not None
    mask = objects.present & among.unsqueeze(1)
    if args.split != "all":
        mask = mask & torch.tensor([split == args.split for split in objects.split or ()])
    candidates = mask.any(0).nonzero().flatten()
    if len(candidates) == 0:
        raise ValueError(f"--split and --in must select at least one object, got none in split {args.split!r}.")
    candidate_number = torch.full((mask.shape[1],), -1)
    candidate_number[candidates] = torch.arange(len(candidates))
    without = None if args.itself or query_positions is None else candidate_number[query_positions]
    num_searched = len(candidates) - (without is not None and bool((without >= 0).any()))
    if args.top > num_searched:
        raise ValueError(f"--top must be at most {num_searched}, the number of objects searched, got {args.top}.")
    neighbours = search(
        queries.embeddings,
        objects.embeddings[:, candidates],
        query_mask=queries.mask,
        mask=mask[:, candidates],
        top=args.top,
        without=without,
        readout=build_loss(args.run.open()).readout or "mean",
        approximate=args.approximate,
    )
    nearest, similarities = candidates[neighbours.indices], neighbours.similarities.tolist()
    cells = shown.read(objects.index[nearest.flatten()].tolist())
    labelled = objects.labels is not None
    head = ["query", "rank", "row", "similarity", *(["label"] if labelled else []), *shown.columns]
    titles = [str(row) if query_positions is not None else f"new {row}" for row in queries.index.tolist()]
    table: list[list[object]] = []
    for query, positions, scores in zip(titles, nearest.tolist(), similarities):
        for rank, (position, similarity) in enumerate(zip(positions, scores), start=1):
            row = int(objects.index[position])
            label = [objects.label_name(position)] if labelled else []
            table.append([query, rank, row, f"{similarity:.4f}", *label, *cells.get(row, {}).values()])
    print_table(head, [[_short(cell) for cell in row] for row in table], max_rows=SHOWN)
    if out is not None and out.suffix == ".html":
        _write_page(out, args, head, table, shown)
    elif out is not None:
        write_csv(out, head, [[_short(cell, None) for cell in row] for row in table])
        print(f"table     {out}")


class _Cells(NamedTuple):
    """Columns of a run's table to print, and the kind of view to which a column belongs; empty for runs on arrays."""

    columns: list[str]
    kinds: dict[str, str]
    source: Source | None
    outside: bool = False  # whether files may be outside the folder of the table

    @classmethod
    def select(cls, run: Run, names: list[str] | None) -> _Cells:
        """Return the named columns; by default the first five besides labels, split, and table and vector views."""
        import json

        from m3g.training.runs.location import located, open_run_table

        options = run.open().data_options
        if "table" not in options:
            if names:
                raise ValueError(
                    f"--show must be columns of the run's table, got {names[0]!r} for a run without a table."
                )
            return cls([], {}, None)
        source = open_run_table(located(run.open(), run), run)
        for name in names or ():
            checks.one_of("--show", name, source.types)
        inputs = json.loads(run.model_text).get("inputs") or []
        kinds = {column: recipe["kind"] for recipe in inputs for column in recipe.get("columns", ())}
        default = [
            name
            for name in source.types
            if kinds.get(name) not in ("table", "vector") and name not in (options.get("labels"), options.get("split"))
        ]
        outside = any("allow_outside" in recipe for recipe in inputs)
        return cls(default[:COLUMNS] if names is None else names, kinds, source, outside)

    def read(self, rows: list[int]) -> dict[int, dict[str, object]]:
        return self.source.rows(self.columns, rows) if self.source is not None and self.columns else {}


def _short(cell: object, max_length: int | None = CHARACTERS) -> object:
    """Return a cell as text of at most `max_length` characters, a whole number unchanged, and bytes as their size."""
    if isinstance(cell, dict):
        cell = cell.get("path") or cell.get("bytes")
    if isinstance(cell, bytes):
        return f"{len(cell)} bytes"
    text = "" if cell is None else str(cell)
    return (
        cell
        if isinstance(cell, int)
        else text
        if max_length is None or len(text) <= max_length
        else f"{text[: max_length - 1]}…"
    )


def _write_page(out: Path, args: Namespace, head: list[str], table: list[list[object]], shown: _Cells) -> None:
    from m3g.data.storage.moved import Folders
    from m3g.report.search_page import cell_html, search_page
    from m3g.training.runs.files import write_text

    new = any("=" in value for value in args.query)
    new_query = "<br>".join(
        f"{escape(view)}: {cell_html(value, shown.kinds.get(view), Folders(Path()), outside=True)}"
        for view, _, value in (argument.partition("=") for argument in args.query)
    )
    num_plain = len(head) - len(shown.columns)
    folders = Folders(Path()) if shown.source is None else shown.source.folders
    tables: dict[str, list[list[str]]] = {}
    for first, *row in table:
        query = escape(str(first))
        title = (new_query if query == "new 0" else query) if new else f"row {query}"
        cells = [escape(str(cell)) for cell in row[: num_plain - 1]]
        views = [
            cell_html(cell, shown.kinds.get(name), folders, outside=shown.outside)
            for name, cell in zip(shown.columns, row[num_plain - 1 :])
        ]
        tables.setdefault(title, []).append(cells + views)
    write_text(out, search_page(f"Search in {args.run.path.name}", head[1:], tables))
    print(f"page      {out}")


def _view_mask(option: str, given: list[str] | None, names: Sequence[str]) -> Tensor:
    """Return a bool mask (k,) of the views that an option names, by default all."""
    import torch

    for name in given or ():
        checks.one_of(f"--{option}", name, names)
    return torch.tensor([given is None or name in given for name in names])


def _queries(args: Namespace, objects: Embedded, by: Tensor) -> tuple[Embedded, Tensor | None]:
    """Return the queries, and their positions among the objects of the run; None for new objects."""
    import torch

    from m3g.training.runs.new_data import embed_query

    if any("=" in value for value in args.query):
        if args.by is not None:
            raise ValueError("--by must be used with rows as the query, got VIEW=VALUE: omit --by.")
        for value in args.query:
            if "=" not in value:
                raise ValueError(f"--query must be either rows or VIEW=VALUE, got {value!r} together with VIEW=VALUE.")
        return embed_query(args.run, args.query, trust=args.trust), None
    assert objects.index is not None
    index = objects.index.tolist()
    try:
        rows = [int(value) for value in args.query]
    except ValueError:
        invalid = next(value for value in args.query if not value.lstrip("-").isdigit())
        raise ValueError(f"--query must be row numbers of the data or VIEW=VALUE, got {invalid!r}.") from None
    for row in rows:
        if row not in index:
            raise ValueError(f"--query must be rows of the data, from {min(index)} to {max(index)}, got {row}.")
    positions = torch.tensor([index.index(row) for row in rows])
    queries = objects.take(positions)
    mask = queries.present & by.unsqueeze(1)
    for row, has_view in zip(rows, mask.any(0).tolist()):
        if not has_view:
            raise ValueError(f"--by must be a view that the query has, but row {row} has none of {', '.join(args.by)}.")
    return replace(queries, mask=mask), positions
