"""All finished results beside the published ones, on one page; `m3g reproduce summary --out FOLDER`."""

from __future__ import annotations

from pathlib import Path

from m3g.experiments.names import NAMES
from m3g.experiments.plan import planned
from m3g.experiments.registry import find
from m3g.experiments.spec import Request
from m3g.experiments.store import Store
from m3g.training.files import write_text


def summary(folder: Path) -> str:
    """The tables of every experiment that has finished runs in `folder/NAME`, in the order of the paper."""
    parts = ["# Results"]
    for name, about in NAMES.items():
        store = Store(folder / name)
        if name == "summary" or not store.path.is_dir():
            continue
        found = [row for row in store.results().values() if row["experiment"] == name]
        results = planned(find(name), found, Request()) if found else []
        if results:
            table = find(name).collect(results, store.path)
            # one level deeper, and pictures where they lie
            table = table.replace("\n## ", "\n### ").replace("](", f"]({name}/")
            parts += [f"## {name}: {about}", table]
    if len(parts) == 1:
        raise ValueError(f"--out must be the folder above the experiments' folders, but {folder} holds no results.")
    text = "\n\n".join(parts)
    write_text(folder / "summary.md", text + "\n")
    return text
