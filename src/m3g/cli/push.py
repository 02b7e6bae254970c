"""`m3g push`: a trained run on the Hugging Face hub."""

from __future__ import annotations

from typing import Any

USAGE = {"push": "RUN REPOSITORY [options]"}
DESCRIPTION = {
    "push": """Upload the network, settings, results and pictures of a run to the Hugging Face hub.

  m3g push runs/m3g-1 my-name/my-model

Checkpoints and logs stay here."""
}


def arguments(parser: Any, name: str) -> None:
    parser.add_argument("run", type=str, help="the folder of a finished run")
    parser.add_argument("repository", type=str, help="NAME/MODEL on the hub; made if it does not exist")
    parser.add_argument("--private", type=bool, default=True, help="whether a new repository is private")


def run(args: Any, name: str) -> int:
    from m3g.training.runs.export import push_to_hub

    print(push_to_hub(args.run, args.repository, private=args.private))
    return 0
