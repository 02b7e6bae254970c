"""`m3g push`: upload a trained run to the Hugging Face hub."""

from __future__ import annotations

from argparse import Namespace

from m3g.cli.parser import Parser

USAGE = {"push": "RUN REPOSITORY [options]"}
DESCRIPTION = {
    "push": """Upload the network, settings, results and plots of a run to the Hugging Face hub, with a model card.

  m3g push runs/m3g-1 my-name/my-model

Checkpoints and logs are not uploaded. m3g.load and every command with a RUN argument accept my-name/my-model in place
of a folder, and my-name/my-model@REVISION for a branch, tag or commit. HF_TOKEN, HF_HUB_OFFLINE and HF_ENDPOINT work as
in huggingface_hub."""
}


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument("run", type=str, help="the folder of a finished run")
    parser.add_argument("repository", type=str, help="USER/NAME on the hub; created if it does not exist")
    parser.add_argument("--private", type=bool, default=True, help="whether a new repository is private")
    parser.add_argument("--license", type=str, default=None, help="licence of the weights, for the model card")


def run(args: Namespace, name: str) -> None:
    from m3g.training.runs.hub import push_to_hub

    print(push_to_hub(args.run, args.repository, private=args.private, license=args.license))
