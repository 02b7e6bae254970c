"""`m3g prepare`: convert sleep recordings to windows, or fonts to images."""

from __future__ import annotations

import logging
from argparse import Namespace
from pathlib import Path
from typing import Literal

from m3g.cli.parser import Parser

USAGE = {"prepare": "READER FOLDER --out DIR [options]"}
DESCRIPTION = {
    "prepare": """Convert a folder of sleep recordings to windows, one .npz file per recording, with a split by subject;
or a folder of fonts, one subfolder per style, to images of 62 characters.

  m3g prepare physionet2018 training/ --out windows/pretrain
  m3g prepare sleep-edf sleep-cassette/ --out windows/sleep
  m3g train --config eeg --data_options.paths windows/pretrain --data_options.splits windows/pretrain/split.csv
  m3g prepare fonts styles/ --out sets            writes sets/fonts.npz for m3g reproduce domainnet

Finished recordings are kept: repeat the command after an interruption."""
}


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument(
        "reader", type=Literal["physionet2018", "sleep-edf", "fonts"], help="physionet2018, sleep-edf or fonts"
    )
    parser.add_argument("folder", type=Path, help="folder of the recordings, searched recursively, or of the styles")
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument(
        "--channels", type=list[str] | None, default=None, help="names of the channels; by default those of the paper"
    )
    parser.add_argument("--rate", type=int, default=100, help="samples per second of the windows")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of a window in seconds")
    parser.add_argument("--skip", action="store_true", help="skip unusable files and list them")
    parser.add_argument("--split_seed", type=int, default=0, help="seed of the split of subjects")


def run(args: Namespace, name: str) -> None:
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    if args.reader == "fonts":
        _fonts(args)
    else:
        _recordings(args)


def _fonts(args: Namespace) -> None:
    import io

    import numpy as np

    from m3g.data.images.fonts import render_fonts
    from m3g.training.runs.files import atomic

    arrays = render_fonts(args.folder, skip=args.skip)
    args.out.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # NumPy 2 declares `allow_pickle: bool`
    with atomic(args.out / "fonts.npz") as file:
        file.write(buffer.getbuffer())
    counts = ", ".join(f"{style} {len(fonts)}" for style, fonts in arrays.items() if style != "chars")
    print(f"fonts by style: {counts}\nimages    {args.out / 'fonts.npz'}")


def _recordings(args: Namespace) -> None:
    from m3g.data.signals import prepare_recordings

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
    print(f"{len(prepared.files)} recordings in {args.out} ({prepared.num_new} new), split in {prepared.split}")
    if prepared.skipped:
        print(f"{len(prepared.skipped)} skipped, listed in {args.out / 'skipped.csv'}")
