"""`m3g embed`: the embeddings of a trained run as arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from m3g import _checks as checks

USAGE = {"embed": "RUN --out FILE.npz [options]"}
DESCRIPTION = {
    "embed": """Write the embeddings of a trained run to one .npz file.

  m3g embed runs/m3g-1 --out emb.npz                    all splits
  m3g embed runs/m3g-1 --out emb.npz --split test

The arrays: embeddings (k, n, d), mean (n, d) the mean of the views' unit vectors, index (n,) the rows of the
files, split (n,), views (k,) their names, and where the data has them labels (n,) and mask (k, n)."""
}


def arguments(parser: Any, name: str) -> None:
    parser.add_argument("run", type=str, help="the folder of a finished run")
    parser.add_argument("--out", type=str, required=True, help="the .npz file to write; it must not exist yet")
    parser.add_argument("--split", type=str, default="all", help="train, val, test or all")
    parser.add_argument(
        "--trust",
        action="store_true",
        help="allow encoder classes from outside m3g, torch.nn and transformers",
    )


def run(args: Any, name: str) -> int:
    from m3g.evaluation import mean_of_views
    from m3g.training.export import load
    from m3g.training.files import atomic
    from m3g.training.fit import build_data
    from m3g.training.report import embed
    from m3g.training.run import Run

    checks.one_of("split", args.split, ("train", "val", "test", "all"))
    out = Path(args.out)
    if out.suffix != ".npz":
        raise ValueError(f"--out must be the name of an .npz file, got {args.out!r}.")
    if out.exists():
        raise ValueError(f"--out must be a file that does not exist yet, but {out} does: delete it or choose another.")
    if not out.parent.is_dir():
        raise ValueError(f"--out must be a file in an existing folder, but there is no folder {out.parent}.")
    config = Run(args.run).open()
    net = load(args.run, trust=args.trust, scaled=True)
    data = build_data(config)
    splits: list[Any] = [split for split in data.datasets if args.split in ("all", split) and data.num_rows(split)]
    if not splits:
        raise ValueError(f"--split must be a split with rows in it, got {args.split!r}, which has none.")
    found: list[Any] = [embed(net, data, split) for split in splits]
    points = np.concatenate([_array(part.embeddings) for part in found], axis=1)
    content: dict[str, Any] = {
        "embeddings": points,
        "mean": np.concatenate([_array(mean_of_views(part.embeddings, part.mask)) for part in found]),
        "index": np.concatenate([_rows(data, split) for split in splits]),
        "split": np.concatenate([np.full(data.num_rows(split), split) for split in splits]),
        "views": np.array(data.view_names),
    }
    if found[0].labels is not None:
        content["labels"] = np.concatenate([_array(part.labels) for part in found])
    if found[0].mask is not None:
        content["mask"] = np.concatenate([_array(part.mask) for part in found], axis=1)
    with atomic(out) as file:
        np.savez(file, **content)
    k, n, d = points.shape
    print(f"{out}: {k} views of {n} points in {d} dimensions ({', '.join(content)})")
    return 0


def _array(tensor: Any) -> np.ndarray:
    return tensor.numpy()


def _rows(data: Any, split: str) -> np.ndarray:
    return np.concatenate([batch["index"].numpy() for batch in data.loader(split)])
