"""`m3g search`: the objects nearest to a query in any of the views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from m3g import _values as checks
from m3g.cli.tables import check_out, show_table, write_csv

if TYPE_CHECKING:
    from torch import Tensor

SHOWN = 40

USAGE = {"search": "RUN --query ROW|VIEW=FILE [...] [options]"}
DESCRIPTION = {
    "search": """Find the objects of a run's data nearest to a query, which may consist of any of its views.

  m3g search runs/m3g-1 --query 17                             row 17 of the data, by all its views
  m3g search runs/m3g-1 --query 17 42 --by pixels zernike      rows 17 and 42, by two of their views
  m3g search runs/m3g-1 --query pixels=new.npy                 new objects with one view
  m3g search runs/m3g-1 --query pixels=new.npy fourier=f.npy --out table.csv

Queries and objects are represented by the mean of the unit embeddings of their views (--by selects the views of the
query, --in those of the objects); similarity is the cosine. A row is not its own neighbour unless --itself is true."""
}


def arguments(parser: Any, name: str) -> None:
    parser.add_argument("run", type=str, help="the folder of a finished run")
    parser.add_argument(
        "--query", type=str, nargs="+", required=True, help="rows of the data, or VIEW=FILE for new objects"
    )
    parser.add_argument("--by", type=str, nargs="+", default=None, help="views of the query to use; by default all")
    parser.add_argument("--in", type=str, nargs="+", default=None, help="views of the objects; by default all")
    parser.add_argument("--top", type=int, default=10, help="number of objects per query")
    parser.add_argument("--split", type=str, default="all", help="search in train, val, test or all")
    parser.add_argument("--itself", type=bool, default=False, help="include the row itself")
    parser.add_argument("--out", type=str, default=None, help=".csv file for the table; must not exist")
    parser.add_run_options()


def run(args: Any, name: str) -> int:
    import torch

    from m3g.evaluation.search import search
    from m3g.training.loop.build import build_loss
    from m3g.training.runs.embed import SPLITS, embed_run
    from m3g.training.runs.folder import Run

    out = check_out(args.out)
    checks.positive_int("--top", args.top)
    checks.one_of("--split", args.split, SPLITS)
    everything = embed_run(args.run, trust=args.trust)
    assert everything.embeddings is not None
    assert everything.index is not None
    by, among = (_chosen(option, getattr(args, option), everything.view_names or ()) for option in ("by", "in"))
    queries, places = _queries(args, everything, by)
    there = everything.present & among.unsqueeze(1)
    if args.split != "all":
        there = there & torch.tensor([split == args.split for split in everything.split or ()])
    kept = there.any(0).nonzero().flatten()
    if len(kept) == 0:
        raise ValueError(f"--split and --in must select at least one object, got none in split {args.split!r}.")
    place = torch.full((there.shape[1],), -1)
    place[kept] = torch.arange(len(kept))
    found = search(
        queries.embeddings,
        everything.embeddings[:, kept],
        query_mask=queries.mask,
        mask=there[:, kept],
        top=args.top,
        without=None if args.itself or places is None else place[places],
        readout=build_loss(Run.of(args.run).open()).readout or "mean",
    )
    labelled = everything.labels is not None
    head = ["query", "rank", "row", "similarity", *(["label"] if labelled else [])]
    table: list[list[Any]] = []
    titles = [str(row) if places is not None else f"new {row}" for row in queries.index.tolist()]
    for query, nearest, similarities in zip(titles, found.places.tolist(), found.similarities.tolist()):
        for rank, (at, similarity) in enumerate(zip(nearest, similarities), start=1):
            one = int(kept[at])
            label = [everything.label_name(one)] if labelled else []
            table.append([query, rank, int(everything.index[one]), f"{similarity:.4f}", *label])
    show_table(head, table, most=SHOWN)
    if out is not None:
        write_csv(out, head, table)
        print(f"table     {out}")
    return 0


def _chosen(option: str, given: list[str] | None, names: Sequence[str]) -> Tensor:
    """Return a bool mask (k,) of the views named by an option."""
    import torch

    for name in given or ():
        checks.one_of(f"--{option}", name, names)
    return torch.tensor([given is None or name in given for name in names])


def _queries(args: Any, everything: Any, by: Tensor) -> tuple[Any, Tensor | None]:
    """Return the queries and their positions in the data; None for new objects."""
    import torch

    from m3g.training.runs.new_data import embed_new

    if any("=" in word for word in args.query):
        if args.by is not None:
            raise ValueError("--by requires rows as the query, got files, which name their views.")
        for word in args.query:
            if "=" not in word:
                raise ValueError(f"--query must be either rows or VIEW=FILE, got {word!r} next to files.")
        return embed_new(args.run, views=args.query, trust=args.trust, option="--query"), None
    index = everything.index.tolist()
    try:
        rows = [int(word) for word in args.query]
    except ValueError:
        wrong = next(word for word in args.query if not word.lstrip("-").isdigit())
        raise ValueError(f"--query must be row numbers of the data or VIEW=FILE, got {wrong!r}.") from None
    for row in rows:
        if row not in index:
            raise ValueError(f"--query must be rows of the data, from {min(index)} to {max(index)}, got {row}.")
    places = torch.tensor([index.index(row) for row in rows])
    queries = everything.take(places)
    mask = queries.present & by.unsqueeze(1)
    for row, some in zip(rows, mask.any(0).tolist()):
        if not some:
            raise ValueError(f"--by must be a view that the query has, but row {row} has none of {', '.join(args.by)}.")
    return replace(queries, mask=mask), places
