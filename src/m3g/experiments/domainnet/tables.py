"""Table 2 and Figures 3 and A1, from finished runs."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from m3g.experiments.engine.spec import Result, grid_values
from m3g.experiments.output import figures, published
from m3g.experiments.output.comparison import at, average_rank, control_table, difference_table, rank_row, within_splits
from m3g.experiments.output.lengths import length_table
from m3g.experiments.output.tables import hours, markdown, percent, setting, write_table
from m3g.experiments.runner.full import ALGORITHM_2
from m3g.experiments.runner.references import REFERENCES, reference_table

TITLES = {
    "fonts": "Fonts: 62 characters, four styles seen, one unseen, n = 16",
    "pacs": "PACS: seven classes, histograms of edges, three domains seen, one unseen, n = 7",
    "office-home": "Office-Home: 40 classes, histograms of edges, three domains seen, one unseen, n = 16",
    "domainnet-small": "DomainNet: 40 classes, histograms of edges, five domains seen, one unseen, n = 16",
    "domainnet": "DomainNet: 345 classes, five domains seen, one unseen, n = 16",
}
ORDER = ("m3g", ALGORITHM_2, "infonce-ave", "infonce-pwe", "byol-ave", "byol-pwe")
ARMS = (*ORDER, *REFERENCES)
NOTE = (
    "Intervals are over the unseen domains; the value of a domain is the mean over its seeds. The last column is the "
    "verdict at 5 % after Holm's correction over the table."
)
Scores = dict[str, dict[tuple[str, int], float]]  # arm, (unseen domain, seed)


def collect(results: list[Result], folder: Path) -> str:
    """Write `table.md`, and figures for every data set that has runs; return the text of `table.md`."""
    parts = [hours(results)]
    for data, title in TITLES.items():
        set_results = [row for row in results if row["labels"]["data"] == data]
        tests = [row for row in set_results if row["labels"]["stage"] == "test"]
        if tests:
            parts += [
                f"## {title}",
                _table(tests),
                _references(set_results),
                _comparison(tests),
                _single(tests, data, folder),
            ]
            parts += [_grid(set_results), _controls(set_results, tests)]
            _picture(tests, folder / data)
            parts.append(f"![Accuracy on each unseen domain]({data}.png)")
            parts += length_table(set_results, _unseen, folder / f"{data}_steps", test_to_train=0.0)
    parts += ["## Published (DomainNet, ViT-B/16, 300 epochs)", _published()]
    return write_table(parts, folder)


def _unseen(row: Result) -> object:
    return row["labels"]["held_out"]


def scores(rows: list[Result]) -> Scores:
    """Return the test accuracy of every arm by (unseen domain, seed)."""
    accuracy: Scores = {}
    for row in sorted(rows, key=lambda row: ARMS.index(row["labels"]["arm"])):
        labels = row["labels"]
        accuracy.setdefault(labels["arm"], {})[labels["held_out"], labels["seed"]] = row["metrics"]["test"]
    return accuracy


def _table(tests: list[Result]) -> str:
    arms = scores(tests)
    domains = sorted({row["labels"]["held_out"] for row in tests})
    rows = [["unseen, accuracy %", *arms]]
    for domain in domains:
        rows.append([domain, *(percent([v for (d, _), v in arms[arm].items() if d == domain]) for arm in arms)])
    rows.append(["mean of domains", *(_mean_of_domains(values, domains) for values in arms.values())])
    rows.append(rank_row(arms))
    effective_ranks: dict[str, list[float]] = {arm: [] for arm in arms}  # near 1 after collapse
    for row in tests:
        effective_ranks[row["labels"]["arm"]].append(row["metrics"].get("effective_rank", math.nan))
    means = {arm: statistics.fmean(values) for arm, values in effective_ranks.items()}
    rows.append(["effective rank", *("—" if math.isnan(mean) else f"{mean:.0f}" for mean in means.values())])
    seeds = {arm: len({seed for _, seed in values}) for arm, values in arms.items()}
    rows.append(["seeds", *(str(seeds[arm]) for arm in arms)])
    return markdown(rows)


def _references(set_results: list[Result]) -> str:
    """Return a table of the scores of the inputs, and of the same network trained on labels."""
    arms = scores([row for row in set_results if row["labels"]["stage"] == "reference"])
    domains = sorted({domain for values in arms.values() for domain, _ in values})
    rows = {
        domain: {arm: percent([v for (d, _), v in values.items() if d == domain]) for arm, values in arms.items()}
        for domain in domains
    }
    rows["mean of domains"] = {arm: _mean_of_domains(values, domains) for arm, values in arms.items()}
    return reference_table("references, unseen, accuracy %", rows)


def _mean_of_domains(values: dict[tuple[str, int], float], domains: list[str]) -> str:
    """Return mean ± standard deviation over seeds of the mean over domains, for the seeds that have all domains."""
    seeds = {seed for _, seed in values}
    whole = [seed for seed in sorted(seeds) if all((domain, seed) in values for domain in domains)]
    return percent([statistics.fmean(values[domain, seed] for domain in domains) for seed in whole])


def _comparison(tests: list[Result]) -> str:
    """Return a table of the differences between M3G and the other methods, over the unseen domains.

    The seeds of a domain are averaged, because runs on the same images are not independent.
    """
    table = difference_table(scores(tests), "m3g", test_to_train=0.0, split_of=lambda key: key[0], splits="domains")
    return table and f"{table}\n\n{NOTE}"


def _single(tests: list[Result], data: str, folder: Path) -> str:
    """Plot heat maps of probes trained on one seen domain; return a table of mean accuracies and average ranks."""
    names = sorted({name for row in tests for name in (row["labels"]["held_out"], *row["metrics"]["single"])})
    values: dict[str, dict[tuple[str, str], list[float]]] = {}  # arm, (seen domain, unseen domain)
    ranked: dict[str, dict[tuple[str, str, int], float]] = {}
    for row in sorted(tests, key=lambda row: ORDER.index(row["labels"]["arm"])):
        labels = row["labels"]
        for domain, value in row["metrics"]["single"].items():
            values.setdefault(labels["arm"], {}).setdefault((domain, labels["held_out"]), []).append(value)
            ranked.setdefault(labels["arm"], {})[domain, labels["held_out"], labels["seed"]] = value
    maps = {
        arm: [
            [100 * statistics.fmean(cells[row, column]) if (row, column) in cells else None for column in names]
            for row in names
        ]
        for arm, cells in values.items()
    }
    figures.heat_maps(maps, names, folder / f"{data}_pairs", rows="probe trained on", columns="unseen, tested on")
    ranks = average_rank(ranked)
    if not ranks:
        return ""
    means = {arm: 100 * statistics.fmean(v for cell in cells.values() for v in cell) for arm, cells in values.items()}
    rows = [["one seen domain to the unseen", *means], ["mean accuracy %", *(f"{v:.1f}" for v in means.values())]]
    rows.append(["average rank", *(f"{ranks[arm]:.2f}" for arm in means)])
    return (
        markdown(rows) + f"\n\n![Accuracy on the unseen domain of a probe trained on one seen domain]({data}_pairs.png)"
    )


def _grid(set_results: list[Result]) -> str:
    """Return a table of the grids with the accuracy on validation images of the seen domains; the best is marked."""
    grid = [row for row in set_results if row["labels"]["stage"] == "grid"]
    rows = [["method", "setting", "validation %", ""]]
    for arm in (arm for arm in ARMS if any(row["labels"]["arm"] == arm for row in grid)):
        settings: dict[str, list[float]] = {}
        for row in grid:
            if row["labels"]["arm"] == arm:
                name = setting(grid_values(row["labels"]))
                settings.setdefault(name, []).append(row["metrics"]["validation"])
        means = {name: statistics.fmean(values) for name, values in settings.items()}
        best = max(means, key=means.__getitem__)
        rows += [
            [arm, name, percent(values), "chosen" if name == best else ""] for name, values in sorted(settings.items())
        ]
    return markdown(rows) if len(rows) > 1 else ""


def _controls(set_results: list[Result], tests: list[Result]) -> str:
    """Return a table that compares each control with the same method without it, and with M3G.

    Compared runs have the same domains and seeds.
    """
    controls: dict[str, list[Result]] = {}
    for row in sorted(set_results, key=lambda row: row["labels"].get("control", "")):
        if row["labels"]["stage"] == "control":
            controls.setdefault(row["labels"]["control"], []).append(row)
    return control_table(
        scores(tests),
        {control: scores(rows) for control, rows in controls.items()},
        test_to_train=0.0,
        split_of=lambda key: key[1],  # by seed, because controls have only two unseen domains
    )


def _picture(tests: list[Result], path: Path) -> None:
    arms = scores(tests)
    domains = sorted({domain for values in arms.values() for domain, _ in values})
    groups = {domain: within_splits(at(arms, domain)) for domain in domains}
    figures.points(groups, path, ylabel="accuracy on the unseen domain, %")


def _published() -> str:
    arms = list(published.DOMAINNET["clipart"])
    rows = [["unseen, accuracy %", *arms]]
    for domain, values in published.DOMAINNET.items():
        rows.append([domain, *(f"{values[arm][0]} ± {values[arm][1]}" for arm in arms)])
    return markdown(rows)
