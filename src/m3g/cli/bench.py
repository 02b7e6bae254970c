"""`m3g bench`: time of the loss and memory of a training step, on this machine."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from m3g import _values as checks
from m3g.cli.output import print_table
from m3g.cli.parser import Parser

USAGE = {"bench": "overhead|memory [options]"}
DESCRIPTION = {
    "bench": """Measure on this machine, with ViT-B/16 as the encoder:

  m3g bench overhead   fraction of a training step spent in the M3G loss, by the number of views
  m3g bench memory     memory stored for the backward pass, by the number of views that the student embeds"""
}


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument("what", type=str, help="overhead or memory")
    parser.add_argument("--n", type=int, default=64, help="points per view in the loss (overhead)")
    parser.add_argument("--d", type=int, default=256, help="features of the embeddings in the loss (overhead)")
    parser.add_argument("--max_k", type=int, default=4, help="largest k (overhead), or the only k (memory)")
    parser.add_argument("--epsilon", type=float, default=None, help="weight of the entropy (overhead)")
    parser.add_argument(
        "--temperature", type=float, default=None, help="epsilon in the units of InfoNCE, 0.1 by default (overhead)"
    )
    parser.add_argument("--images", type=int, default=2, help="images per view for measuring the network")
    parser.add_argument("--repeats", type=int, default=3, help="number of timings; the median is reported (overhead)")
    parser.add_argument("--out", type=str, default="bench", help="output folder")


def run(args: Namespace, name: str) -> None:
    checks.one_of("bench", args.what, ("overhead", "memory"))
    for option in ("n", "d", "images", "repeats"):
        checks.positive_int(f"--{option}", getattr(args, option))
    checks.whole("--max_k", args.max_k, least=2)
    if args.epsilon is not None and args.temperature is not None:
        raise ValueError(f"--temperature must not be given together with --epsilon, got {args.temperature:g}.")
    for option in ("epsilon", "temperature"):
        if getattr(args, option) is not None:
            checks.positive(f"--{option}", getattr(args, option))
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (_overhead if args.what == "overhead" else _memory)(args, out)


def _overhead(args: Namespace, out: Path) -> None:
    import torch

    from m3g.evaluation.plots import plot_curves
    from m3g.experiments.overhead import overhead
    from m3g.training.runs.files import write_json
    from m3g.training.runs.folder import environment

    ks = list(range(2, args.max_k + 1))
    print(f"measuring ViT-B/16 on {2 * args.images} images and M3G on n = {args.n}, d = {args.d} ...", flush=True)
    rows = overhead(
        n=args.n,
        d=args.d,
        ks=ks,
        epsilon=args.epsilon,
        temperature=args.temperature,
        images=args.images,
        repeats=args.repeats,
    )
    print_table(
        ["k", "loss (ms)", "ViT-B/16, student and teacher (s)", "fraction of the step"],
        [(r["k"], f"{1e3 * r['loss']:.1f}", f"{r['network']:.0f}", f"{100 * r['share']:.3f} %") for r in rows],
    )
    print(
        f"The loss is measured forward and backward, in student-teacher form, with {torch.get_num_threads()} thread(s)."
        f" The network is measured on {2 * args.images} images and scaled linearly to {args.n} per view."
    )
    write_json(out / "overhead.json", {"rows": rows, "settings": vars(args), "environment": environment()})
    share = {"measured": (ks, [100 * r["share"] for r in rows])}
    picture = plot_curves({"M3G's fraction of a step of ViT-B/16, %": share}, out / "overhead.png", x_label="k views")
    print(f"numbers   {out / 'overhead.json'}\npicture   {picture}")


def _memory(args: Namespace, out: Path) -> None:
    from m3g.experiments.overhead import memory
    from m3g.training.runs.files import write_json
    from m3g.training.runs.folder import environment

    rows = memory(k=args.max_k, n=args.images)
    full = rows[-1]["bytes"]
    print_table(
        ["student views", "teacher views", "stored for the backward pass (MiB)", "relative to no teacher views"],
        [
            (
                int(r["students"]),
                args.max_k - int(r["students"]),
                f"{r['bytes'] / 2**20:.0f}",
                f"{100 * r['bytes'] / full:.0f} %",
            )
            for r in rows
        ],
    )
    print(f"ViT-B/16, {args.images} images per view; parameters, gradients and optimiser state are not counted.")
    write_json(out / "memory.json", {"rows": rows, "settings": vars(args), "environment": environment()})
    print(f"numbers   {out / 'memory.json'}")
