"""Markdown tables for the terminal and the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev

from m3g.experiments.engine.spec import Change, Result, grid_values
from m3g.training.runs.files import write_text


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table with aligned columns; the first row contains the titles.

    Example:
        >>> print(markdown([["method", "test"], ["m3g", "71.4"]]))
        | method | test |
        | ------ | ---- |
        | m3g    | 71.4 |
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines)


def write_table(parts: Iterable[str], folder: Path) -> str:
    """Write the non-empty parts of a page to `table.md`, separated by blank lines; return the text."""
    text = "\n\n".join(part for part in parts if part)
    write_text(folder / "table.md", text + "\n")
    return text


def percent(values: Sequence[float]) -> str:
    """Format mean ± standard deviation in percent; only the mean for a single value, and a dash for none.

    Example:
        >>> percent([0.5, 0.52]), percent([0.5])
        ('51.0 ± 1.4', '50.0')
    """
    if not values:
        return "—"
    return f"{100 * fmean(values):.1f}" + (f" ± {100 * stdev(values):.1f}" if len(values) > 1 else "")


def setting(change: Change) -> str:
    """Format one setting of a grid.

    Example:
        >>> setting({"optim.learning_rate": 0.003, "loss_options.epsilon": 0.05})
        'epsilon 0.05, learning rate 0.003'
    """
    return ", ".join(f"{name.rpartition('.')[2].replace('_', ' ')} {value:g}" for name, value in sorted(change.items()))


def grid_table(results: Sequence[Result], *, first: str) -> str:
    """Return a table of the settings of grids with their validation scores.

    The results of each arm must be sorted, the best first. `first` is the title of the column of arms.
    """
    rows = [[first, "setting", "validation %", ""]]
    seen: set[str] = set()
    for row in results:
        arm = row["labels"]["arm"]
        score = f"{100 * row['metrics']['validation']:.1f}"
        rows.append([arm, setting(grid_values(row["labels"])), score, "" if arm in seen else "chosen"])
        seen.add(arm)
    return markdown(rows) if results else ""


def hours(results: Sequence[Result]) -> str:
    """Format the number of runs and their total time.

    Example:
        >>> hours([{"seconds": 90.0}, {"seconds": 120.0}])
        '2 runs, 3.5 minutes in total.'
    """
    seconds = sum(row["seconds"] for row in results)
    unit, size = ("hours", 3600) if seconds >= 3600 else ("minutes", 60) if seconds >= 60 else ("seconds", 1)
    return f"{len(results)} runs, {seconds / size:.1f} {unit} in total."
