"""Tables in the form of the paper's Table 3, from finished runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from m3g.experiments.engine.spec import Result
from m3g.experiments.output import figures, published
from m3g.experiments.output.comparison import at, average_rank, difference_table, lines
from m3g.experiments.output.lengths import length_table
from m3g.experiments.output.tables import grid_table, hours, markdown, percent, write_table
from m3g.experiments.runner.references import reference_table

TITLES = {
    "sleep": "Sleep stages from features of six sensors (SleepEDFx, 20 subjects, five stages)",
    "raw": "Two groups of subjects from raw signals (EEGMAT to UCI EEG, six sites)",
    "windows": "Sleep stages from some windows of raw signals (PhysioNet 2018 to SleepEDFx)",
    "physionet": "Sleep stages from raw signals (PhysioNet 2018 to SleepEDFx)",
}
# Test rows per training row, for random splits of the subjects; 0 for the single split at the paper's scale.
OVERLAP = {"sleep": 0.2 / 0.7, "raw": 0.2 / 0.6, "windows": 0.2 / 0.6, "physionet": 0.0}
Scores = dict[str, dict[tuple[int, int], float]]  # arm, (labels per class, seed)
OURS = "m3g, n = 16"
OTHER_SCALE = "m3g, n = 16, untuned, epsilon in the scale of Algorithm 2"


def collect(results: list[Result], folder: Path) -> str:
    """Write `table.md`, and figures for every data set that has test runs; return the text."""
    parts = [hours(results)]
    for data, title in TITLES.items():
        set_results = [row for row in results if row["labels"]["data"] == data]
        tests = [row for row in set_results if row["labels"]["stage"] == "test"]
        if not tests:
            continue
        arms = scores(tests)
        plain = scores(tests, "accuracy")  # as in the paper; older runs have balanced accuracy only
        parts += [
            f"## {title}",
            _table(arms),
            _table(plain, "accuracy %") if plain else "",
            _references(set_results),
            *_comparisons(arms, data),
            _grid(set_results),
        ]
        curves = lines(arms, test_to_train=OVERLAP[data])
        paper = {arm: {s: (value, 0.0) for s, value in by.items()} for arm, by in published.EEG.items()}
        figures.curves(
            curves, folder / data, xlabel="labels per class", ylabel="balanced accuracy, %", logarithmic=True,
            published=paper,
        )  # fmt: skip
        parts.append(f"![Balanced accuracy against the number of labels per class]({data}.png)")
        parts += length_table(set_results, lambda row: None, folder / f"{data}_steps", test_to_train=OVERLAP[data])
    parts += ["## Published (PhysioNet 2018 to SleepEDFx, mean of five seeds)", _published()]
    return write_table(parts, folder)


def scores(rows: list[Result], metric: str = "shots") -> Scores:
    """Return the balanced accuracy (`shots`) or the accuracy by arm, labels per class and seed; M3G first."""
    values: Scores = {}
    for row in sorted(rows, key=lambda row: (row["labels"]["arm"] != OURS, row["labels"]["arm"])):
        for s, value in row["metrics"].get(metric, {}).items():
            values.setdefault(row["labels"]["arm"], {})[int(s), row["labels"]["seed"]] = value
    return values


def _shots(arms: Scores) -> list[int]:
    return sorted({s for values in arms.values() for s, _ in values})


def _cell(values: dict[tuple[int, int], float], s: int) -> str:
    return percent([value for (shots, _), value in values.items() if shots == s])


def _table(arms: Scores, title: str = "balanced accuracy %") -> str:
    ranks = average_rank(arms)
    rows = [[title, *(f"s = {s}" for s in _shots(arms)), "seeds", "average rank"]]
    for arm, values in arms.items():
        cells = [_cell(values, s) for s in _shots(arms)]
        seeds = max(Counter(s for s, _ in values).values())
        rows.append([arm, *cells, str(seeds), f"{ranks[arm]:.2f}" if arm in ranks else "—"])
    return markdown(rows)


def _references(set_results: list[Result]) -> str:
    """Return a table of the scores of `REFERENCES`: inputs, and the arms' network trained on all training labels."""
    references = scores([row for row in set_results if row["labels"]["stage"] == "reference"])
    rows = {f"s = {s}": {name: _cell(by, s) for name, by in references.items()} for s in _shots(references)}
    return reference_table("references, balanced accuracy %", rows)


def _comparisons(arms: Scores, data: str) -> list[str]:
    """Return, per number of labels per class, a title and a table of the differences between M3G and other arms."""
    parts = []
    for s in _shots({OURS: arms.get(OURS, {})}):
        table = difference_table(at(arms, s), OURS, test_to_train=OVERLAP[data])
        parts += [f"s = {s}:", table] if table else []
    return parts


def _grid(set_results: list[Result]) -> str:
    grid = [row for row in set_results if row["labels"]["stage"] == "grid"]
    return grid_table(sorted(grid, key=lambda row: (row["labels"]["arm"], -row["metrics"]["validation"])), first="arm")


def _published() -> str:
    shots = (10, 50, 100, 1000)
    rows = [["accuracy %", *(f"s = {s}" for s in shots)]]
    rows += [[arm, *(str(values[s]) for s in shots)] for arm, values in published.EEG.items()]
    return markdown(rows)
