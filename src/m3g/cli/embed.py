"""`m3g embed`: the embeddings of a trained run as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from m3g.cli.tables import check_out

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
    from m3g.training.embedded_run import embed_run
    from m3g.training.files import atomic

    out = check_out(args.out, suffix=".npz")
    assert out is not None
    found = embed_run(args.run, args.split, trust=args.trust)
    content: dict[str, Any] = {
        "embeddings": found.embeddings.numpy(),
        "mean": mean_of_views(found.embeddings, found.mask).numpy(),
        "index": found.index,
        "split": found.split,
        "views": np.array(found.data.view_names),
    }
    if found.labels is not None:
        content["labels"] = found.labels.numpy()
    if found.mask is not None:
        content["mask"] = found.mask.numpy()
    with atomic(out) as file:
        np.savez(file, **content)
    k, n, d = found.embeddings.shape
    print(f"{out}: {k} views of {n} points in {d} dimensions ({', '.join(content)})")
    return 0
