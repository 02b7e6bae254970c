"""`m3g match`: match the rows of k files in unknown order."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from m3g._values import existing
from m3g.cli.output import check_out, print_table
from m3g.cli.parser import Parser
from m3g.training.runs.location import split_key

SHOWN = 20  # maximum number of printed rows
MAX_ROW = 2**53  # float64 represents every row number up to this one

USAGE = {"match": "A.npy B.npy [C.npy ...] [options]"}
DESCRIPTION = {
    "match": """Match the rows of k files in unknown order. The files may have different numbers of rows.

  m3g match a.npy b.npy c.npy                      print the first rows of the best polymatching
  m3g match a.npy b.npy c.npy --out table.csv      write all rows to a file
  m3g match emb.npz:a emb.npz:b --epsilon 0.002    two arrays of one file, sharper matching
  m3g match a.npy b.npy c.npy --one-to-one         every row of every file in exactly one tuple
  m3g match a.npy b.npy c.npy --allow-unmatched    the same, but rows without a likely partner stay unmatched

All files contain points of one space and have the same number of columns. Each line of the table is the most probable
tuple of a row of the largest file (the first, if several have the same length). It contains the number of one row of
each file, counted from 0. With --alternatives N, each row of the largest file has N lines. The probability is that of
exactly these partners under the best polymatching; the probabilities of all tuples of a row sum to 1. They depend on
epsilon and are not calibrated.

With --one-to-one, every row is in exactly one tuple. The membership of a row is the estimated probability that it
belongs with the other rows of its tuple, and the probability of a tuple is the smallest membership of its rows. On four
real data sets, memberships differ from observed frequencies by 0.02 to 0.22 on average, and with 40 known objects
(--known) by 0.02 to 0.08. An empty cell means that the tuple has no row of this file."""
}


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument(
        "files", type=str, nargs="+", help="k >= 2 files (.npy .npz .mat .csv .tsv .json .xlsx .parquet), one per view"
    )
    parser.add_argument("--out", type=str, default=None, help=".csv file for the table; must not exist")
    parser.add_argument(
        "--epsilon",
        type=float,
        default=None,
        help="weight of the entropy, 0.01 by default; a smaller value gives a sharper matching",
    )
    parser.add_argument(
        "--temperature",
        type=float,
        default=None,
        help="epsilon in the units of InfoNCE, which are the same for every k; instead of --epsilon",
    )
    parser.add_argument(
        "--cost",
        type=str,
        default="cv",
        help="cv, csd, product, sqeuclidean, cosine, coulomb, or a sum of them such as 0.5*cv[:16] + product[16:]",
    )
    parser.add_argument(
        "--solver", type=str, default="auto", help="auto, factored, dense, sampled, sinkhorn, linear-program"
    )
    parser.add_argument("--normalize", type=bool, default=True, help="scale every row to unit length first")
    parser.add_argument("--alternatives", type=int, default=1, help="tuples per row of the largest file")
    parser.add_argument("--one-to-one", action="store_true", help="assign every row of every file to exactly one tuple")
    parser.add_argument(
        "--allow-unmatched",
        action="store_true",
        help="like --one-to-one, but rows that probably have no partner are left unmatched",
    )
    parser.add_argument(
        "--known",
        type=str,
        default=None,
        help="table of row numbers to calibrate the probabilities: one line per object with known correspondence, one "
        "column per file, -1 or an empty cell for no row",
    )


def run(args: Namespace, name: str) -> None:
    for file in args.files:
        existing("files", split_key(file)[0])  # before the imports below
    if args.known is not None:
        existing("--known", args.known)
    import numpy as np

    from m3g.data.storage.readers import ArrayFiles, file_names
    from m3g.matching import match
    from m3g.polymatching import NO_ROW
    from m3g.training.runs.files import write_csv

    out = check_out(args.out, ".csv")
    if len(args.files) < 2:
        raise ValueError(f"files must be k >= 2 files, one per view, got {len(args.files)}.")
    if args.known is not None and not (args.one_to_one or args.allow_unmatched):
        raise ValueError("--known must be used with --one-to-one or --allow-unmatched, got neither.")
    with ArrayFiles() as opened:
        arrays = [opened.read(file, name="files") for file in args.files]
    for file, array in zip(args.files, arrays):
        if array.ndim != 2 or array.dtype.kind not in "biuf":
            got = f"{array.dtype} of shape {array.shape} in {file!r}"
            raise ValueError(f"files must be tables of numbers (rows, columns), got {got}.")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"files must have finite numbers, got NaN or inf in {file!r}.")
    columns = sorted({array.shape[1] for array in arrays})
    if len(columns) > 1:
        raise ValueError(
            f"files must have the same number of columns, got {columns}: embed the views first, "
            "with m3g train and m3g embed."
        )
    matching = match(
        arrays,
        epsilon=args.epsilon,
        temperature=args.temperature,
        cost=args.cost,
        solver=args.solver,
        normalize=args.normalize,
        alternatives=args.alternatives,
        one_to_one=args.one_to_one,
        allow_unmatched=args.allow_unmatched,
        known=None if args.known is None else _known(args.known, file_names(args.files)),
    )
    head = [*file_names(args.files), "probability"]
    rows = [
        (*("" if row == NO_ROW else row for row in rows), f"{probability:.4f}")
        for rows, probability in zip(matching.tuples.tolist(), matching.probabilities.tolist())
    ]
    print_table(head, rows, max_rows=SHOWN)
    if matching.memberships is None:
        certain = float((matching.probabilities[:: args.alternatives] > 0.5).double().mean())
        print(f"{100 * certain:.0f} % of the rows of {head[matching.anchor]} have a tuple of probability above 0.5")
        where = "in no tuple"
    else:
        complete = int((matching.tuples != NO_ROW).all(1).sum())
        print(f"{complete} tuples have a row of every file, {len(rows) - complete} do not")
        where = "unmatched"
    for l, view in enumerate(head[:-1]):
        if matching.unused(l):
            print(f"{matching.unused(l)} of {len(arrays[l])} rows of {view} are {where}")
    if args.known is None:
        needed = "--one-to-one --known FILE" if matching.memberships is None else "--known FILE"
        print(f"probabilities are not calibrated: use {needed} with the rows of some objects")
    if out is not None:
        write_csv(out, head, rows)
        print(f"table     {out}")


def _known(file: str, views: Sequence[str]) -> list[list[int]]:
    """Return the row numbers of known objects.

    If the column names of a table are the names of the files, its columns are put in the order of the files.
    """
    import numpy as np

    from m3g.data.storage.readers import ArrayFiles
    from m3g.polymatching import NO_ROW

    names: list[str] = []
    with ArrayFiles() as opened:
        rows = opened.read(file, name="--known", columns=names)
    if rows.ndim != 2 or rows.dtype.kind not in "iuf":
        raise ValueError(f"--known must be a table of row numbers, got {rows.dtype} of shape {rows.shape} in {file!r}.")
    if rows.dtype.kind == "f":
        rows = np.where(np.isnan(rows), NO_ROW, rows)  # an empty cell, as in the table that the command writes
        if len(wrong := rows[(rows != rows.round()) | (abs(rows) > MAX_ROW)]):
            raise ValueError(f"--known must be a table of row numbers, got {wrong[0]:g} in {file!r}.")
    if sorted(names) == sorted(views):
        rows = rows[:, [names.index(view) for view in views]]
    return [[int(row) for row in line] for line in rows.tolist()]
