"""Export of a trained network to one file per view, for use without m3g and, in the ONNX format, without PyTorch.

Every file maps the unscaled inputs of one view to embeddings: it contains the scaling of the training data, the encoder
and the heads in one graph with a dynamic number of rows. Files in fp32 are written only if they agree with PyTorch.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from m3g import _checks
from m3g.evaluation.retrieval import retrieval
from m3g.training.loop.build import build_data
from m3g.training.runs.export import digest, load
from m3g.training.runs.files import write_json
from m3g.training.runs.folder import Run
from m3g.training.runs.trained import TrainedNet

FORMATS = {"onnx": ".onnx", "torch": ".pt2"}
PRECISIONS = ("fp32", "fp16", "int8")
ROWS = 512  # maximum number of rows compared with PyTorch
TOLERANCE = 1e-4  # largest difference, as a fraction of the largest absolute value in PyTorch's embeddings
INPUT, OUTPUT = "view", "view_embedding"

Function = Callable[[np.ndarray], np.ndarray]


class Rows(NamedTuple):
    """Inputs for the comparison with PyTorch: every view (n, ...), the mask (k, n), and whether they are real data."""

    views: list[Tensor]
    mask: Tensor | None
    real: bool


class ExportedView(TypedDict):
    """Description of a view in `views.json`; `difference` is the largest error divided by the largest value."""

    name: str
    file: str
    kind: str | None
    dtype: str
    shape: list[int]
    difference: float
    sha256: str


class _Exported(TypedDict):
    format: str
    precision: str
    input: str
    output: str
    rows: int
    test_rows: bool
    views: list[ExportedView]


class Exported(_Exported, total=False):
    """Content of `views.json`.

    `rows` is the number of rows compared with PyTorch, and `test_rows` whether they are real data (`Rows.real`).
    `recall_at_1`, of PyTorch and of the exported files, is included for real data of two or more views.
    """

    recall_at_1: dict[str, float]


class OneView(nn.Module):
    """Encoder and heads of one view as a module with one input tensor."""

    def __init__(self, net: TrainedNet, l: int) -> None:
        super().__init__()
        self.scale = net.scaling[str(l)] if str(l) in net.scaling else nn.Identity()
        self.encoder = net.encoders[l % len(net.encoders)]
        self.projector = net.projectors[l % len(net.projectors)]
        self.predictor = nn.Identity() if net.predictor is None else net.predictor

    def forward(self, view: Tensor) -> Tensor:
        embedding: Tensor = self.predictor(self.projector(self.encoder(self.scale(view))))
        return embedding


def export(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    format: str = "onnx",
    precision: str = "fp32",
    trust: bool = False,
) -> Exported:
    """Write one file per view and `views.json` to the new folder `out`; return the content of `views.json`.

    Args:
        run: the folder of a finished run.
        out: a folder that does not exist yet.
        format: `onnx`, read by onnxruntime, or `torch`, read by `torch.export.load`.
        precision: `fp32`; for ONNX also `fp16` or `int8` weights. These two require the run's data, because R@1 is
            measured before and after the conversion.
        trust: allow encoder classes from outside m3g, torch.nn and transformers.

    Raises:
        ValueError: if an exported fp32 file differs from PyTorch, in which case `out` is not written.
    """
    _checks.one_of("format", format, FORMATS)
    _checks.one_of("precision", precision, PRECISIONS)
    if precision != "fp32" and format != "onnx":
        raise ValueError(f"precision must be fp32 with format {format!r}, got {precision!r}.")
    for package in ("onnx", "onnxscript", "onnxruntime") if format == "onnx" else ():
        _checks.extra(package, "onnx")
    folder, path = Run.of(run), Path(out)
    if path.exists():
        raise ValueError(f"--out must be a folder that does not exist yet, but {path} does: choose another name.")
    net = load(folder, trust=trust).float()
    rows = _rows(folder, net, required=precision != "fp32")
    building = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    building.mkdir(parents=True)
    try:
        content = _write(net, rows, building, format, precision)
        write_json(building / "views.json", content)
        building.rename(path)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return content


def _write(net: TrainedNet, rows: Rows, folder: Path, format: str, precision: str) -> Exported:
    names = [re.sub(r"[^\w.-]+", "_", name) for name in net.view_names]
    if len(set(names)) < len(names):
        names = [f"{name}-{l}" for l, name in enumerate(names)]
    views: list[ExportedView] = []
    outputs, expected = [], []
    for l, (name, view) in enumerate(zip(names, rows.views)):
        file = folder / f"{name}{FORMATS[format]}"
        module = OneView(net, l).eval()
        with torch.no_grad():
            reference = module(view).numpy()
        function = _write_onnx(module, view, file, precision) if format == "onnx" else _write_torch(module, view, file)
        output = function(view.numpy())
        error = _difference(output, reference)
        if precision == "fp32" and not error <= TOLERANCE:
            raise ValueError(
                f"view {net.view_names[l]!r} must have the same embeddings as in PyTorch when exported, but they "
                f"differ by {error:.1e} of the largest value (allowed: {TOLERANCE:g}): nothing was written."
            )
        outputs.append(torch.from_numpy(np.array(output)))
        expected.append(torch.from_numpy(reference))
        recipe = net.inputs[l] if net.inputs else {"kind": "array"}
        views.append(
            {
                "name": net.view_names[l],
                "file": file.name,
                "kind": recipe.get("kind"),
                "dtype": str(view.numpy().dtype),
                "shape": list(view.shape[1:]),
                "difference": error,
                "sha256": digest(file.read_bytes()),
            }
        )
    content: Exported = {
        "format": format,
        "precision": precision,
        "input": INPUT,
        "output": OUTPUT,
        "rows": len(rows.views[0]),
        "test_rows": rows.real,
        "views": views,
    }
    if rows.real and len(views) > 1:
        content["recall_at_1"] = {"pytorch": _recall(expected, rows.mask), "exported": _recall(outputs, rows.mask)}
    return content


def _rows(run: Run, net: TrainedNet, *, required: bool) -> Rows:
    """Return unscaled rows of the first of the splits test, val and train that has at least two rows.

    If the data cannot be read, return random rows, or raise if the data are `required`.
    """
    try:
        data = build_data(run.open(), run)
        split = next(name for name in ("test", "val", "train") if data.num_rows(name) > 1)
        views, mask, _ = data.arrays(split, most=ROWS)  # type: ignore[arg-type]
        scalings = data.scaling or [None] * len(views)
        raw = [view if scaling is None else view * scaling[1] + scaling[0] for view, scaling in zip(views, scalings)]
        return Rows(raw, mask, True)
    except (ValueError, OSError, StopIteration) as error:
        if required:
            raise ValueError(f"precision must be fp32 if the data of the run cannot be read ({error}).") from error
    rng = torch.Generator().manual_seed(0)
    drawn = []
    for l, shape in enumerate(net.view_shapes):
        recipe, size = net.inputs[l] if net.inputs else {}, (64, *shape)
        if recipe.get("kind") == "text":
            dtype = torch.int32 if recipe.get("processor") else torch.uint8  # tokens, or bytes
            drawn.append(torch.randint(1, 200, size, generator=rng, dtype=dtype))
        else:
            drawn.append(torch.randn(size, generator=rng))
    return Rows(drawn, None, False)


def _write_onnx(module: nn.Module, view: Tensor, file: Path, precision: str) -> Function:
    import onnx
    import onnxruntime

    rows = torch.export.Dim("rows")
    with _quiet():
        program = torch.onnx.export(
            module,
            (view[:2].clone(),),
            dynamo=True,
            dynamic_shapes=({0: rows},),
            input_names=[INPUT],
            output_names=[OUTPUT],
            verbose=False,
        )
        assert program is not None
        program.save(file)
        if precision == "fp16":
            from onnxruntime.transformers.float16 import convert_float_to_float16

            onnx.save(convert_float_to_float16(onnx.load(file), keep_io_types=True), file)
        elif precision == "int8":
            from onnxruntime.quantization import quantize_dynamic

            model = onnx.load(file)
            del model.graph.value_info[:]  # outdated shapes, which shape inference rejects
            quantize_dynamic(model, file)
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return lambda array: session.run([OUTPUT], {INPUT: array})[0]


def _write_torch(module: nn.Module, view: Tensor, file: Path) -> Function:
    with _quiet():
        program = torch.export.export(module, (view[:2].clone(),), dynamic_shapes=({0: torch.export.Dim("rows")},))
        torch.export.save(program, file)
        loaded = torch.export.load(file).module()

    def call(array: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            output: np.ndarray = loaded(torch.from_numpy(array)).numpy()
        return output

    return call


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress messages of the exporters about torchvision, and a deprecation warning within torch."""
    names = ("torch.onnx._internal.exporter._registration", "root")
    before: Mapping[str, int] = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".isinstance.treespec, LeafSpec", FutureWarning)  # raised within torch
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _difference(output: np.ndarray, reference: np.ndarray) -> float:
    if output.shape != reference.shape or not np.isfinite(output).all():
        return float("inf")
    return float(np.abs(output - reference).max() / max(np.abs(reference).max(), 1e-30))


def _recall(views: list[Tensor], mask: Tensor | None) -> float:
    recall = retrieval(torch.stack(views).float(), mask=mask).recall[1]
    return float(recall[~torch.eye(len(views), dtype=torch.bool)].nanmean())
