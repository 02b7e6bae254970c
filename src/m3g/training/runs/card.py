"""Model card of a run for the Hugging Face hub."""

from __future__ import annotations

import json

from m3g.training.runs.folder import Run

CITATION = """@inproceedings{piran2024contrasting,
  title = {Contrasting Multiple Representations with the Multi-Marginal Matching Gap},
  author = {Piran, Zoe and Klein, Michal and Thornton, James and Cuturi, Marco},
  booktitle = {International Conference on Machine Learning},
  year = {2024}
}"""


def model_card(run: Run, repository: str, *, license: str | None = None) -> str:
    """Return the text of `README.md` from the settings and results of a run."""
    config = run.open()
    model = json.loads(run.model_text)
    names = model.get("view_names") or [f"view{l}" for l in range(len(model["view_shapes"]))]
    shapes = [" x ".join(map(str, shape)) for shape in model["view_shapes"]]
    front = ["library_name: m3g", "pipeline_tag: feature-extraction", "tags:", "- multi-view", "- contrastive-learning"]
    if license is not None:
        front.insert(0, f"license: {json.dumps(license)}")
    options = ", ".join(f"{name} {value}" for name, value in config.loss_options.items())
    lines = [
        "---",
        *front,
        "---",
        f"# {repository.partition('/')[2]}",
        "",
        f"Encoders of {len(names)} views in one space of {model['projector']['out_features']} dimensions, trained with "
        f"[m3g](https://pypi.org/project/m3g).",
        "",
        "## Views",
        "",
        "| view | shape of a sample |",
        "| --- | --- |",
        *(f"| {name} | {shape} |" for name, shape in zip(names, shapes)),
        "",
        "## Training",
        "",
        f"- data: `{config.data}`",
        f"- loss: `{config.loss}`" + (f" ({options})" if options else ""),
        f"- epochs: {config.loop.epochs}, seed: {config.seed}",
        "- every setting: `config.yaml`",
        "",
        *_results(run),
        "## Use",
        "",
        "```python",
        "import m3g",
        "",
        f'net = m3g.load("{repository}")',
        "objects = net.embed(views)  # a list of arrays, or a dictionary by view name; some views may be missing",
        "objects.mean, objects.views, objects.mask",
        "```",
        "",
        "## Citation",
        "",
        "```bibtex",
        CITATION,
        "```",
        "",
    ]
    return "\n".join(lines)


def _results(run: Run) -> list[str]:
    if not run.results.is_file():
        return []
    content = json.loads(run.results.read_text(encoding="utf-8"))
    rows = [
        f"| {name} | {_cell(value)} | "
        + " | ".join(_cell((content.get(column) or {}).get(name)) for column in ("linear_cca", "raw", "chance"))
        + " |"
        for name, value in content["numbers"].items()
    ]
    head = [f"## Results on {content.get('test_rows')} test rows", ""]
    head += ["| measure | value | linear CCA | raw features | chance |", "| --- | --- | --- | --- | --- |"]
    return [*head, *rows, ""]


def _cell(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}"
