"""Runs on the Hugging Face hub: upload with a model card, and download.

A run on the hub is read like a local one: from safetensors, JSON and YAML, without executing code of the repository,
and weights that do not match the SHA-256 in `model.json` are rejected. Files are copied out of the hub's cache, because
it consists of symbolic links and a run folder must not contain any.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from m3g import _checks
from m3g.nets import hub
from m3g.training.runs.files import write_text
from m3g.training.runs.folder import Run

FILES = ["model.safetensors", "model.json", "config.yaml", "results.json", "README.md", "plots/*.png"]
NEEDED = ("model.safetensors", "model.json")
CITATION = """@inproceedings{piran2024contrasting,
  title = {Contrasting Multiple Representations with the Multi-Marginal Matching Gap},
  author = {Piran, Zoe and Klein, Michal and Thornton, James and Cuturi, Marco},
  booktitle = {International Conference on Machine Learning},
  year = {2024}
}"""


def fetch(
    repository: str,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
) -> Path:
    """Download a run, or use an earlier download; return its folder.

    Args:
        repository: USER/NAME, or USER/NAME@REVISION.
        revision: a branch, tag or commit; by default the one in `repository`, otherwise `main`.
        token: access token for private repositories; None uses that of `hf auth login`.
        local_files_only: do not connect; `HF_HUB_OFFLINE=1` has the same effect.
    """
    client = _checks.extra("huggingface_hub", "train")
    name, _, given = repository.partition("@")
    revision = revision or given or None
    with _hub_errors(repository, "read from"):
        snapshot = Path(
            client.snapshot_download(
                name,
                revision=revision,
                token=token,
                allow_patterns=FILES,
                local_files_only=local_files_only or not hub.reachable(),
            )
        )
    missing = [file for file in NEEDED if not (snapshot / file).is_file()]
    if missing:
        raise ValueError(f"run must be a repository of a run, but {repository} has no {missing[0]}: check the name.")
    home = Path(client.constants.HF_HOME) / "m3g" / name.replace("/", "--") / snapshot.name
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f".{home.name}.", dir=home.parent))
        try:
            shutil.copytree(snapshot, building, dirs_exist_ok=True)
            with contextlib.suppress(OSError):  # another process was faster
                building.rename(home)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return home


def push_to_hub(
    run: str | os.PathLike[str],
    repository: str,
    *,
    private: bool = True,
    token: str | bool | None = None,
    revision: str | None = None,
    license: str | None = None,
    commit_message: str | None = None,
) -> str:
    """Upload network, settings, results and plots of a run with a model card; return the address.

    Args:
        run: the folder of a finished run.
        repository: USER/NAME; created if it does not exist.
        private: whether a new repository is private.
        token: access token; None uses that of `hf auth login`.
        revision: an existing branch to write to; by default `main`.
        license: the licence of the weights for the model card, for example `apache-2.0`.
        commit_message: by default "Upload a run of m3g".
    """
    from m3g.training.runs.export import load

    folder = Run.of(run)
    load(folder)  # rejects an unfinished or damaged run before uploading
    with tempfile.TemporaryDirectory(prefix="m3g-") as copies:
        for pattern in FILES:
            for path in folder.path.glob(pattern):
                target = Path(copies) / path.relative_to(folder.path)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        write_text(Path(copies) / "README.md", model_card(folder, repository, license=license))
        message = commit_message or "Upload a run of m3g"
        return upload(copies, repository, private=private, token=token, revision=revision, message=message)


def upload(
    folder: str, repository: str, *, private: bool, token: str | bool | None, revision: str | None, message: str
) -> str:
    """Upload the files of a folder; return the address. See `push_to_hub`."""
    client = _checks.extra("huggingface_hub", "train")
    with _hub_errors(repository, "written to"):
        if not hub.reachable():
            raise ConnectionError(f"no answer from {client.constants.ENDPOINT}")
        api = client.HfApi(token=token)
        address = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, revision=revision, commit_message=message)
    return str(address)


@contextlib.contextmanager
def _hub_errors(repository: str, what: str) -> Iterator[None]:
    """Convert errors of the client to a ValueError; `what` is "read from" or "written to"."""
    try:
        yield
    except Exception as error:  # the client raises various errors: connection, permission, token
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"repository must be a name on a hub that can be reached and {what}, got {repository!r} ({reason}): "
            "check the name and the connection, and log in with `hf auth login`."
        ) from error


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
