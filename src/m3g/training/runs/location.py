"""Location of the data files of a run: paths are stored as the user gave them, and files may have moved since then."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from m3g import _catalogue
from m3g.data.storage.moved import below
from m3g.training.runs.folder import Run
from m3g.training.settings.config import Config

if TYPE_CHECKING:
    from m3g.data.tables.source import Source


def located(config: Config, run: Run) -> Config:
    """Return the settings of a run with the paths at which its data files exist.

    A file is searched for in this order: below `run.data_root`, if set; in the directory in which the run was trained;
    at the same location relative to the run folder, for a run that was moved with its data; in the current directory.
    """
    options = dict(config.data_options)
    for name, paths in path_options(config).items():
        files = [_find(f"data_options.{name}", path, run) for path in paths]
        options[name] = files if isinstance(options[name], (list, tuple)) else files[0]
    if "table" in options:
        options["data_root"] = _root_of_cells(config, Path(options["table"]), run)
    view = {name: _with_model(settings, run) for name, settings in config.view.items()}
    return replace(config, data_options=options, view=view, encoder_options=_with_model(config.encoder_options, run))


def open_run_table(config: Config, run: Run) -> Source:
    """Return the table of located settings, which is opened once per run."""
    from m3g.data.tables.source import open_table  # imports torch

    if run.table is None:
        run.table = open_table(config.data_options["table"], data_root=config.data_options["data_root"])
    return run.table


def _root_of_cells(config: Config, table: Path, run: Run) -> str | None:
    """Return the folder in which to search for the files named in a table.

    It is None if no folder is set and the table was not moved.
    """
    if run.data_root is not None:
        return str(run.data_root)
    if config.data_options.get("data_root") is not None:
        return _find("data_options.data_root", config.data_options["data_root"], run)
    trained = Path(str(run.facts.get("directory", "")), config.data_options["table"])
    moved = trained.resolve() != table.resolve()
    return str(table if table.is_dir() else table.parent) if moved else None


def path_options(config: Config) -> dict[str, list[str]]:
    """Return the paths in the options of a data set, by option name."""
    paths = {}
    for name, annotation in _catalogue.find("data", config.data, _catalogue.DATA).annotations().items():
        given = config.data_options.get(name)
        if "Path" in annotation and given:
            paths[name] = [str(path) for path in (given if isinstance(given, (list, tuple)) else [given])]
    return paths


def split_key(given: str) -> tuple[str, str]:
    """Return the file of a path `FILE` or `FILE:NAME`, where NAME is an array in the file, and the rest of the path.

    Example:
        >>> split_key("a/b.npz:x"), split_key("c.npy")
        (('a/b.npz', ':x'), ('c.npy', ''))
    """
    at = max(given.rfind(f"{end}:") + len(end) if f"{end}:" in given else -1 for end in (".npz", ".mat"))
    return (given, "") if at < 0 else (given[:at], given[at:])


def _find(option: str, given: str, run: Run) -> str:
    path, key = split_key(given)
    for candidate in _candidates(Path(path), run):
        if candidate.exists():
            return f"{candidate}{key}"
    trained = run.facts.get("directory")
    where = f" (the run was trained in {trained})" if trained and not Path(path).is_absolute() else ""
    root = "" if run.data_root is None else f", nor below {run.data_root}"
    raise ValueError(
        f"{option} of {run} must be a file or folder that exists, but there is none at {path}{where}{root}: it was "
        "moved or deleted; pass its folder with --data-root."
    )


def _candidates(path: Path, run: Run) -> Iterator[Path]:
    if run.data_root is not None:
        yield from below(run.data_root, path)
        if not path.suffix:
            yield run.data_root  # the folder itself, if it was renamed
    directory, relative = (run.facts.get(name) for name in ("directory", "directory_from_run"))
    if isinstance(directory, str):
        yield Path(directory, path)  # an absolute path is unchanged
    if isinstance(relative, str):
        inside = os.path.relpath(path, directory) if path.is_absolute() and isinstance(directory, str) else path
        yield Path(os.path.normpath(run.path.resolve() / relative / inside))
    yield path


def _with_model(options: Mapping[str, object], run: Run) -> dict[str, object]:
    """Return the options of an encoder, with the current path of a pretrained model in a local folder."""
    model = options.get("model")
    if not isinstance(model, str) or "/" not in model:
        return dict(options)
    return {**options, "model": next((str(path) for path in _candidates(Path(model), run) if path.is_dir()), model)}
