"""`make fuzz`: test random problems, kills, damage, early ends and malicious input; exit with 1 after a failure.

PYTHONPATH=tests python -m fuzz                                 a few minutes
PYTHONPATH=tests python -m fuzz --problems 20000 --kills 100 --damage 100
PYTHONPATH=tests python -m fuzz --case '{"seed": 24, ...}'      one problem again, as printed by a run that failed
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from fuzz.cases import Case
from fuzz.damage import damage
from fuzz.endings import endings
from fuzz.hostile import CASES, hostile
from fuzz.kills import kills
from fuzz.outcome import Tried
from fuzz.pool import problems
from fuzz.pools import pools
from fuzz.problems import try_case

KINDS = ("held", "warned", "refused", "skipped", "failed")


def collect(attempts: Iterable[Tried], total: int, title: str, console: Console) -> list[Tried]:
    """Return all attempts; show a progress bar while they run."""
    done = []
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(title, total=total)
        for tried in attempts:
            done.append(tried)
            bar.advance(task)
    return done


def show(tried: list[Tried], console: Console) -> None:
    """Print one row per group, and the failures with the commands that reproduce them."""
    table = Table("group", "trials", *KINDS)
    groups = sorted({one.group for one in tried})
    for group in groups:
        counts = Counter(one.outcome.kind for one in tried if one.group == group)
        table.add_row(group, str(counts.total()), *(str(counts[kind]) for kind in KINDS))
    counts = Counter(one.outcome.kind for one in tried)
    table.add_row("all", str(len(tried)), *(str(counts[kind]) for kind in KINDS))
    console.print(table)
    sampled = [one.outcome for one in tried if one.group == "solve, sampled" and one.outcome.kind == "held"]
    if sampled:
        beyond = sum(bool(outcome.text) for outcome in sampled)
        console.print(f"sampled and trusted: {1 - beyond / len(sampled):.1%} within two standard errors")
    failures = sorted((one for one in tried if one.outcome.kind == "failed"), key=lambda one: len(one.reproducer))
    for one in failures[:20]:
        console.print(f"FAILED {one.group}: {one.outcome.text}\n    {one.reproducer}", markup=False, soft_wrap=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__, formatter_class=_Raw)
    parser.add_argument("--problems", type=int, default=2000, help="random problems against the dense reference")
    parser.add_argument("--kills", type=int, default=10, help="trainings that are killed and resumed")
    parser.add_argument("--damage", type=int, default=30, help="files of a run that are damaged")
    parser.add_argument("--endings", type=int, default=8, help="commands interrupted, killed, out of space, or at once")
    parser.add_argument("--pools", type=int, default=2, help="pools of m3g reproduce whose processes are killed")
    parser.add_argument("--hostile", action=argparse.BooleanOptionalAction, default=True, help="malicious input")
    parser.add_argument("--solver", help="only this solver: auto, factored, dense, sinkhorn or sampled")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first problem; each further problem adds 1")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--case", help="one problem, as printed by an earlier run that failed")
    options = parser.parse_args(arguments)
    console = Console()
    if options.case:
        outcome = try_case(Case.read(options.case))
        console.print(f"{outcome.kind}: {outcome.text}", markup=False)
        return int(outcome.kind == "failed")
    tried: list[Tried] = []
    if options.problems:
        drawn = problems(options.problems, first=options.seed, solver=options.solver, workers=options.workers)
        tried += collect(drawn, options.problems, "problems", console)
    if options.kills:
        tried += collect(kills(options.kills, seed=options.seed), options.kills, "kills", console)
    if options.damage:
        tried += collect(damage(options.damage, seed=options.seed), options.damage, "damage", console)
    if options.endings:
        tried += collect(endings(options.endings, seed=options.seed), options.endings, "endings", console)
    if options.pools:
        tried += collect(pools(options.pools, seed=options.seed), options.pools, "pools", console)
    if options.hostile:
        tried += collect(hostile(), len(CASES), "hostile input", console)
    show(tried, console)
    return int(any(one.outcome.kind == "failed" for one in tried))


class _Raw(argparse.RawDescriptionHelpFormatter):
    """Keep the line breaks of the description."""


if __name__ == "__main__":
    sys.exit(main())
