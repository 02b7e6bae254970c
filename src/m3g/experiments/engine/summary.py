"""`m3g reproduce summary --out FOLDER`: all finished results, with the published ones, on one page."""

from __future__ import annotations

import re
from pathlib import Path

from m3g.experiments.engine.plan import planned
from m3g.experiments.engine.registry import NAMES, RECORDS, find
from m3g.experiments.engine.spec import Request, Result
from m3g.experiments.engine.store import Store
from m3g.experiments.output.tables import hours
from m3g.training.runs.files import write_text

FOLDERS = {"laptop": "{name}", "paper": "{name}-paper"}
AT_PAPER_SCALE = " at the paper's scale"


def summary(folder: Path) -> str:
    """Return the main tables of every experiment with finished runs in `folder/NAME` or `folder/NAME-paper`.

    The page is also written to `summary.md`. The `table.md` and figures of these experiments, except `RECORDS`, are
    rewritten. Comparisons, controls and grids are only in `table.md`, not on the page.
    """
    parts = [
        "# All results on one page",
        "This page shows the main tables of every experiment that has finished runs, with the published numbers if the "
        "paper reports them. It is written by `m3g reproduce summary`. Scores are means in percent unless stated "
        "otherwise. ± is the standard deviation over seeds; in `synergy` and in tables of differences, it is half the "
        "width of a 95 % interval.",
    ]
    for name, about in (NAMES | RECORDS).items():
        for scale, pattern in FOLDERS.items():
            store = Store(folder / pattern.format(name=name))
            rows = [row for row in store.results().values() if row["experiment"] == name]
            results, text = _tables(name, rows, scale, store)
            if results:
                title = f"## {name}{AT_PAPER_SCALE if scale == 'paper' else ''}: {about}"
                source = f"{hours(results)} Comparisons, controls and grids: `{store.path.name}/table.md`."
                parts += [title, source, main_tables(text).replace("](", f"]({store.path.name}/")]
    if len(parts) == 2:
        raise ValueError(f"--out must be the folder above the experiments' folders, but {folder} contains no results.")
    text = "\n\n".join(parts)
    write_text(folder / "summary.md", text + "\n")
    return text


def _tables(name: str, rows: list[Result], scale: str, store: Store) -> tuple[list[Result], str]:
    """Return the results of the current plan and their tables.

    For an experiment whose code was removed (`RECORDS`), return all results and the stored tables.
    """
    if not rows:
        return [], ""
    if name in RECORDS:
        stored = store.path / "table.md"
        return (rows, stored.read_text(encoding="utf-8")) if stored.is_file() else ([], "")
    results = planned(find(name), rows, Request(scale=scale)) if scale in find(name).seeds else []
    return results, find(name).collect(results, store.path) if results else ""


def main_tables(text: str, *, max_sections: int = 3) -> str:
    r"""Return the first table and all pictures of each of the first sections, with headings one level deeper.

    Sections without a table are omitted and not counted. The section "Published" is kept wherever it is.

    Example:
        >>> print(main_tables("2 runs.\n\n## A\n\n| a |\n\n| grid |\n\n![p](p.png)"))
        ### A
        <BLANKLINE>
        | a |
        <BLANKLINE>
        ![p](p.png)
    """
    kept = []
    parts = re.split(r"\n\n(?=## )", "\n\n" + text)
    for number, part in enumerate(part for part in parts if "\n| " in "\n" + part):
        blocks = [block for block in part.split("\n\n") if block.strip()]
        tables = [block for block in blocks if block.startswith("| ")]
        if number < max_sections or blocks[0].startswith("## Published"):
            kept += ["#" + block for block in blocks if block.startswith("## ")]
            kept += [*tables[:1], *(block for block in blocks if block.startswith("!["))]
    return "\n\n".join(kept)
