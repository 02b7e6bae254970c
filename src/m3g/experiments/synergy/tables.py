"""Table and plot of `m3g reproduce synergy`, from finished runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

from m3g.evaluation.paired import interval_of_mean, paired
from m3g.experiments.engine.spec import Result
from m3g.experiments.output import figures
from m3g.experiments.output.comparison import holm_verdicts
from m3g.experiments.output.lengths import length_table
from m3g.experiments.output.tables import hours, markdown, write_table
from m3g.experiments.synergy.sets import SETS

OURS, SUPERVISED = "m3g, product", "supervised"
ORDER = (
    OURS,
    "m3g-rest",
    "m3g, cv and product",
    "symile",
    "gram",
    "triangle",
    "m3g, cv",
    "infonce-pwe",
    "infonce-ave",
    SUPERVISED,
)
TEST_TO_TRAIN = 0.2 / 0.6
Scores = dict[str, dict[str, dict[int, float]]]  # set, arm, seed


def by_set(results: list[Result], metric: str, stage: str = "test") -> Scores:
    """Return the scores of the runs of a stage by set, arm and seed."""
    scores: Scores = {}
    for row in results:
        labels = row["labels"]
        if labels["stage"] == stage and metric in row["metrics"]:
            scores.setdefault(labels["data"], {}).setdefault(labels["arm"], {})[labels["seed"]] = row["metrics"][metric]
    return {name: scores[name] for name in SETS if name in scores}


def collect(results: list[Result], folder: Path) -> str:
    """Write `table.md` and the picture; return the text."""
    scores = by_set(results, "found")
    # If every object is its own class (`chance` is None), the supervised network does not predict the last view but
    # other labels, so its score is in the table of the probes.
    labelled = {name: {SUPERVISED: arms.pop(SUPERVISED, {})} for name, arms in scores.items() if not SETS[name].chance}
    parts = [hours(results), "## Retrieval of the last view from the other two", _levels(scores)]
    parts += ["## Differences", _against(scores)]
    parts += ["## Chosen temperatures and scores", _choices(results)]
    probes = by_set(results, "probe")
    for name, arms in probes.items():
        arms |= labelled.get(name, {})
    if probes:
        parts += ["## Sentiment, from all embeddings or by a network trained on labels", _levels(probes)]
    untuned = by_set(results, "found", "control")
    if untuned:
        parts += ["## The same temperature for all losses, 0.12, not tuned", _levels(untuned), _against(untuned)]
    lengths = length_table(
        results,
        lambda row: row["labels"]["data"],
        folder / "steps",
        test_to_train=TEST_TO_TRAIN,
        main_stage="control",
    )
    parts += [f"Temperature 0.12, {SETS['digits-hard'].about}, first split:", *lengths] if lengths else []
    text = write_table(parts, folder)
    picture = draw(scores, folder / "synergy")
    return f"{text}\n\npicture     {picture}" if picture else text


def _arms(scores: Mapping[str, Mapping[str, object]]) -> list[str]:
    return sorted({arm for arms in scores.values() for arm in arms}, key=ORDER.index)


def _levels(scores: Scores) -> str:
    rows = [["loss", *scores]]
    for arm in _arms(scores):
        rows.append([arm, *(_level(arms.get(arm, {})) for arms in scores.values())])
    rows.append(["chance", *(_chance(name) for name in scores)])
    return markdown(rows) + "\n\nIn percent, mean ± half the 95 % interval over the splits (Nadeau and Bengio)."


def _level(values: Mapping[int, float]) -> str:
    if not values:
        return "—"
    mean = f"{100 * statistics.fmean(values.values()):.1f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {100 * interval_of_mean(list(values.values()), test_to_train=TEST_TO_TRAIN):.1f}"


def _chance(name: str) -> str:
    chance = SETS[name].chance
    return f"{100 * chance:.1f}" if chance else "—"


def _against(scores: Scores) -> str:
    """Return a table of the differences between M3G (product cost) and every other loss, with Holm's correction."""
    comparisons = {
        (name, arm): paired(arms[OURS], values, test_to_train=TEST_TO_TRAIN)
        for name, arms in scores.items()
        if OURS in arms
        for arm, values in arms.items()
        if arm not in (OURS, SUPERVISED)
    }
    verdicts = holm_verdicts(comparisons)
    rows = [[f"{OURS} minus", *scores]]
    for arm in _arms(scores):
        keys = [(name, arm) for name in scores]
        cells = [f"{comparisons[key]} {verdicts[key]}" if key in verdicts else "—" for key in keys]
        if any(cell != "—" for cell in cells):
            rows.append([arm, *cells])
    return (
        markdown(rows)
        + "\n\nPoints, with 95 % intervals over the splits (Nadeau and Bengio). Ahead and behind: at the "
        f"level of 5 % after Holm's correction over the {len(verdicts)} comparisons of this table."
    )


def _choices(results: list[Result]) -> str:
    """Return a table of the temperature of every loss on every set, and of its most frequently chosen score.

    Each run chooses the score for retrieval on its validation rows (scores.py).
    """
    chosen: dict[str, dict[str, list[Result]]] = {}
    for row in results:
        labels = row["labels"]
        if labels["stage"] == "test" and "score" in row["metrics"]:
            chosen.setdefault(labels["data"], {}).setdefault(labels["arm"], []).append(row)
    names = [name for name in SETS if name in chosen]
    rows = [["temperature and score", *names]]
    rows += [[arm, *(_choice(chosen[name].get(arm, [])) for name in names)] for arm in _arms(chosen)]
    return markdown(rows)


def _choice(runs: list[Result]) -> str:
    if not runs:
        return "—"
    temperature = ", ".join(f"{value:g}" for value in (runs[0].get("chosen") or {}).values())
    return f"{temperature} {statistics.mode(run['metrics']['score'] for run in runs)}"


def draw(scores: Scores, path: Path) -> Path | None:
    """Plot the fraction of objects retrieved in the bit sets against the fraction of XOR bits, one line per loss."""
    lines: dict[str, dict[float, tuple[float, float]]] = {}
    for name, arms in scores.items():
        share = SETS[name].share
        if not name.startswith("bits") or share is None:
            continue
        for arm, values in arms.items():
            half = interval_of_mean(list(values.values()), test_to_train=TEST_TO_TRAIN)
            lines.setdefault(arm, {})[100 * share] = (100 * statistics.fmean(values.values()), 100 * half)
    if not lines:
        return None
    return figures.curves(lines, path, xlabel="XOR bits, %", ylabel="last view retrieved, %")[0]
