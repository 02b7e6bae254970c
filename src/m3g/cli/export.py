"""`m3g export`: export a trained network for use without m3g."""

from __future__ import annotations

from argparse import Namespace

from m3g.cli.parser import Parser

USAGE = {"export": "RUN --out DIR [options]"}
DESCRIPTION = {
    "export": """Write the trained network of a run as one file per view, for use without m3g.

  m3g export runs/m3g-1 --out served                      an .onnx file per view, for onnxruntime
  m3g export runs/m3g-1 --out served --precision int8     8-bit weights; prints recall before and after
  m3g export runs/m3g-1 --out served --format torch       a .pt2 file per view, for torch.export.load

Each file contains the scaling of the training data, accepts unscaled inputs of its view with any number of rows, and
returns embeddings. With fp32, files are written only if their outputs agree with PyTorch on rows of the data, or on
random rows if the data cannot be read. views.json describes the files."""
}


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument("run", type=str, help="the folder of a finished run, or USER/NAME on the hub")
    parser.add_argument("--out", type=str, required=True, help="output folder; must not exist")
    parser.add_argument("--format", type=str, default="onnx", help="onnx or torch")
    parser.add_argument("--precision", type=str, default="fp32", help="fp32, fp16 or int8")
    parser.add_run_options()


def run(args: Namespace, name: str) -> None:
    from m3g.training.runs.portable import export

    content = export(args.run, args.out, format=args.format, precision=args.precision, trust=args.trust)
    for view in content["views"]:
        shape = " x ".join(["n", *map(str, view["shape"])])
        print(f"{args.out}/{view['file']}: {view['dtype']} {shape}, differs from PyTorch by {view['difference']:.0e}")
    source = "rows of the data" if content["test_rows"] else "random rows, because the data cannot be read"
    print(f"compared on {content['rows']} {source}")
    if "recall_at_1" in content:
        recall = content["recall_at_1"]
        print(f"recall at 1: {recall['pytorch']:.4f} with PyTorch, {recall['exported']:.4f} exported")
