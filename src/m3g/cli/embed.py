"""`m3g embed`: write the embeddings of a trained run."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from m3g.cli.output import check_out
from m3g.cli.parser import Parser

USAGE = {"embed": "RUN --out FILE.npz [options]"}
DESCRIPTION = {
    "embed": """Write the embeddings of a trained run to an .npz file, or to a copy of its .h5mu or .h5ad file.

  m3g embed runs/m3g-1 --out emb.npz                    all splits
  m3g embed runs/m3g-1 --out emb.npz --split test
  m3g embed runs/m3g-1 --out cells.h5mu                 a copy of the run's .h5mu or .h5ad file with obsm["X_m3g"]
  m3g embed runs/m3g-1 --out emb.npz --table new.csv            new objects with some of the columns of the run
  m3g embed runs/m3g-1 --out emb.npz --views pixels=new.npy     new objects with one view

Arrays: embeddings (k, n, d), zero for missing views; mean (n, d) of the unit embeddings of the present views; index
(n,), the row numbers in the data; split (n,); views (k,), the names of the views; if the data has them, labels (n,) and
mask (k, n), False for missing views. New objects have embeddings, mean, mask, index and views."""
}


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument("run", type=str, help="the folder of a finished run")
    parser.add_argument("--out", type=str, required=True, help="output file (.npz, .h5mu or .h5ad); must not exist")
    parser.add_argument("--split", type=str, default=None, help="train, val, test or all (default)")
    parser.add_argument("--table", type=str, default=None, help="new objects: a table with any of the run's columns")
    parser.add_argument(
        "--views", type=str, nargs="+", default=None, help="new objects: files of any of the views, as NAME=FILE"
    )
    parser.add_run_options()


def run(args: Namespace, name: str) -> None:
    import numpy as np

    from m3g.data.tables import omics
    from m3g.training.runs.embed import embed_run
    from m3g.training.runs.files import atomic
    from m3g.training.runs.location import located
    from m3g.training.runs.new_data import embed_new

    suffix = Path(args.out).suffix if Path(args.out).suffix in omics.SUFFIXES else ".npz"
    out = check_out(args.out, suffix)
    assert out is not None
    new = args.table is not None or args.views is not None
    if new and args.split is not None:
        raise ValueError("--split must not be combined with --table or --views, which define new objects.")
    if new:
        embedded = embed_new(args.run, table=args.table, views=args.views, trust=args.trust)
    else:
        embedded = embed_run(args.run, args.split or "all", trust=args.trust)
    arrays = {
        "embeddings": embedded.embeddings, "mean": embedded.mean, "mask": embedded.mask, "index": embedded.index,
        "split": embedded.split, "views": embedded.view_names, "labels": embedded.labels,
    }  # fmt: skip
    content = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
    if "mask" in content:
        content["embeddings"] = np.where(content["mask"][..., None], content["embeddings"], np.float32(0))
    if suffix == ".npz":
        with atomic(out) as file:
            np.savez(file, **content)  # type: ignore[arg-type]  # NumPy 2 declares `allow_pickle: bool`
    else:
        table = args.table or located(args.run.open(), args.run).data_options.get("table")
        if table is None or Path(table).suffix != suffix:
            raise ValueError(f"--out must be an .npz file unless the data is a {suffix} file, got {args.out!r}.")
        omics.write_embeddings(Path(table), out, content["mean"], content["index"])
    k, n, d = content["embeddings"].shape
    print(f"{out}: {k} views of {n} objects in {d} dimensions ({', '.join(content)})")
