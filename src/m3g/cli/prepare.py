"""`m3g prepare`: sleep recordings in their published formats become windows, one file per recording."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Literal

USAGE = {"prepare": "READER FOLDER --out DIR [options]"}
DESCRIPTION = {
    "prepare": """Turn a folder of sleep recordings into windows, one .npz file per recording, and a split by subject.

  m3g prepare physionet2018 training/ --out windows/pretrain
  m3g prepare sleep-edf sleep-cassette/ --out windows/sleep
  m3g train --config eeg --data_options.paths windows/pretrain --data_options.splits windows/pretrain/split.csv

What is done already is kept: run the same command again after an interruption."""
}


def arguments(parser: Any, name: str) -> None:
    parser.add_argument("reader", type=Literal["physionet2018", "sleep-edf"], help="format of the recordings")
    parser.add_argument("folder", type=Path, help="where the recordings are, at any depth")
    parser.add_argument("--out", type=Path, required=True, help="where the windows go")
    parser.add_argument("--channels", type=list[str] | None, default=None, help="other channels than the paper's")
    parser.add_argument("--rate", type=int, default=100, help="samples per second")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of a window")
    parser.add_argument("--skip", action="store_true", help="leave out recordings that cannot be used, and name them")
    parser.add_argument("--split_seed", type=int, default=0, help="decides which subjects are held out")


def run(args: Any, name: str) -> None:
    from m3g.data.signals import prepare_recordings

    logging.basicConfig(format="%(message)s", level=logging.INFO)
    prepared = prepare_recordings(
        args.reader,
        args.folder,
        args.out,
        channels=args.channels,
        rate=args.rate,
        seconds=args.seconds,
        skip=args.skip,
        split_seed=args.split_seed,
    )
    print(f"{len(prepared.files)} recordings in {args.out} ({prepared.made} made now), split in {prepared.split}")
    if prepared.skipped:
        print(f"{len(prepared.skipped)} left out, named in {args.out / 'skipped.csv'}")
