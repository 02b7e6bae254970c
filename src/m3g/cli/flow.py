"""`m3g flow`: animate gradient descent on a loss, with the true matching and the best polymatching."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from m3g import _values as checks
from m3g.cli.output import check_new_folder, print_table
from m3g.cli.parser import Parser

USAGE = {"flow": "[options]"}
DESCRIPTION = {
    "flow": """Draw and animate the paper's Figure 1: the points of n objects (colours) in k views (shapes) move by
gradient descent (Adam) on a loss, without a network. The true matching and the best polymatching are also drawn.

  m3g flow                                            five objects in three views, in the plane
  m3g flow --loss m3g infonce-pwe                     two losses side by side, from the same points
  m3g flow --space sphere --n 5 --k 4 --seed 3        on the sphere
  m3g flow --epsilon 0.2 --steps 200 --out pictures   a larger epsilon, more steps

Writes flow.png, flow.svg, flow.gif and, if ffmpeg is installed, flow.mp4."""
}


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument("--n", type=int, default=5, help="number of objects")
    parser.add_argument("--k", type=int, default=3, help="number of views")
    parser.add_argument("--space", type=str, default="plane", help="plane or sphere")
    parser.add_argument(
        "--loss",
        type=str,
        nargs="+",
        default=["m3g"],
        help="one or two losses: m3g and infonce-pwe in the plane; on the sphere, any that requires no teacher",
    )
    parser.add_argument("--epsilon", type=float, default=None, help="weight of the entropy in the gap, 0.05 by default")
    parser.add_argument(
        "--temperature",
        type=float,
        default=None,
        help="temperature of InfoNCE, 0.1 by default; if given without --epsilon, also that of the gap",
    )
    parser.add_argument(
        "--cost", type=str, default=None, help="cost of a tuple; by default sqeuclidean in the plane, cv on the sphere"
    )
    parser.add_argument("--steps", type=int, default=100, help="number of gradient steps")
    parser.add_argument("--rate", type=float, default=0.01, help="learning rate of Adam")
    parser.add_argument(
        "--frames", type=int, default=48, help="approximate number of frames of the animation, at most one per step"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the initial points")
    parser.add_argument(
        "--out", type=str, default=None, help="output folder; must not exist; by default the next free runs/flow-N"
    )


def run(args: Namespace, name: str) -> None:
    from m3g.flow import descend as flow
    from m3g.flow import pictures as flow_pictures
    from m3g.training.runs.numbered import make_numbered

    setting = flow.Setting(
        space=args.space,
        epsilon=args.epsilon,
        temperature=args.temperature,
        cost=args.cost,
        steps=args.steps,
        rate=args.rate,
    )
    if not 1 <= len(args.loss) <= 2 or len(set(args.loss)) < len(args.loss):
        raise ValueError(f"--loss must be one loss or two different ones, got {' '.join(args.loss)}.")
    for loss in args.loss:
        flow.check_loss(loss, args.space)
    checks.whole("--frames", args.frames, least=2)
    points = flow.start(args.n, args.k, space=args.space, seed=args.seed)
    given = check_new_folder(args.out)
    flows = {loss: flow.descend(points, loss, setting) for loss in args.loss}
    out = make_numbered(Path("runs"), "flow") if given is None else given
    out.mkdir(parents=True, exist_ok=given is None)
    rows = [
        (loss, m.step, f"{m.loss:.4f}", f"{m.gap:.4f}", f"{100 * m.matched:.0f} %")
        for loss, moments in flows.items()
        for m in moments[:: max(1, args.steps // 6)]
    ]
    print_table(["loss", "step", "value", "gap", "matched"], rows)
    for loss, moments in flows.items():
        first = flow.first_matched_step(moments)
        if first is None:
            print(f"{loss}: the best polymatching is not the true one after {args.steps} steps: increase --steps")
        else:
            print(f"{loss}: the best polymatching is the true one from step {first} on")
    figure = flow_pictures.triptych(flows, flow.start_middle_end(list(flows.values())))
    paths = [flow_pictures.save_still(figure, out / f"flow.{kind}") for kind in ("png", "svg")]
    paths += flow_pictures.animate(flows, flow.evenly(list(flows.values()), args.frames), out)
    for path in paths:
        print(f"picture   {path}")
