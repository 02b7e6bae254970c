"""Data sets and losses that the user adds to `m3g reproduce views` with `--add FILE`.

The Python file registers them with `data_set` and `view_loss`. The command then executes only their runs: an added set
with all losses, an added loss on all sets whose files exist, including the built-in digits.

    from m3g.experiments.views.added import data_set, view_loss

    @data_set("orchids", ["petal", "leaf", "smell"])
    def orchids(source): ...  # arrays by name, from the folder of --data

    @view_loss("to-the-mean", [{"loss_options.weight": value} for value in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)])
    class ToTheMean(ViewLoss): ...
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from m3g import losses
from m3g.experiments.engine.spec import Change
from m3g.experiments.views.grids import FIXED, GRIDS, NUM_SETTINGS
from m3g.experiments.views.sets import SETS, data_set, register_files

__all__ = ["data_set", "extend", "view_loss"]


Factory = TypeVar("Factory", bound=Callable[..., losses.ViewLoss])


def view_loss(name: str, grid: Sequence[Change], **fixed: float | str) -> Callable[[Factory], Factory]:
    """Register a `ViewLoss` (or a function that returns one) for this process, with its grid of settings.

    Args:
        name: a new name; `m3g reproduce views --methods NAME` runs only this loss.
        grid: six changes of the configuration, one per setting, such as `{"loss_options.temperature": 0.1}`.
        fixed: options of the loss common to all settings.
    """
    if len(grid) != NUM_SETTINGS:
        raise ValueError(f"grid must have {NUM_SETTINGS} settings, like that of every other loss, got {len(grid)}.")

    def register(factory: Factory) -> Factory:
        losses.register(name, factory)
        GRIDS[name], FIXED[name] = list(grid), fixed
        return factory

    return register


def extend(file: str | None, source: Path | None, target: Path) -> set[str]:
    """Register the multi-view files of the data folder, and execute the user's file; return the names it registers."""
    register_files(source, target)
    if file is None:
        return set()
    path = Path(file)
    if path.suffix != ".py" or not path.is_file():
        raise ValueError(f"--add must be a Python file that exists, got {str(file)!r}.")
    before = {**SETS, **GRIDS}
    spec = importlib.util.spec_from_file_location(f"m3g_added_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    added = {name for name, entry in {**SETS, **GRIDS}.items() if before.get(name) is not entry}
    if not added:
        raise ValueError(f"--add must be a file that uses data_set or view_loss, got {str(file)!r}.")
    return added
