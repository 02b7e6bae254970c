"""What `m3g reproduce` does with its arguments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from m3g import _checks as checks
from m3g.experiments.engine.plan import describe, planned, write_plan
from m3g.experiments.engine.pool import do_run, one_thread, run_pool
from m3g.experiments.engine.registry import find
from m3g.experiments.engine.slurm import write_scripts
from m3g.experiments.engine.spec import Experiment, Request, RunSpec
from m3g.experiments.engine.store import Store
from m3g.experiments.engine.summary import summary
from m3g.experiments.views.added import load


def reproduce(args: Any) -> int:
    """Plan, do, collect, or write the script for a cluster; returns the exit code."""
    if args.experiment == "summary":
        return _summary(args)
    asked = [f"--{name}" for name in ("plan", "run", "collect", "slurm") if getattr(args, name)]
    if len(asked) > 1 and asked != ["--plan", "--slurm"]:
        raise ValueError(f"--plan, --run, --collect and --slurm must be given one at a time, got {' '.join(asked)}.")
    jobs = checks.positive_int("--jobs", args.jobs)
    checks.positive("--hours", args.hours)
    for name, least in (("nodes", 1), ("gpus", 0)):
        if getattr(args, name) < least:
            raise ValueError(f"--{name} must be at least {least}, got {getattr(args, name)}.")
    experiment = find(args.experiment)
    if args.add is not None:
        checks.one_of("experiment with --add", experiment.name, ("views",))
        load(args.add)
    request = wanted(experiment, args)
    paper = request.scale == "paper"
    store = Store(args.out or Path("runs") / (experiment.name + ("-paper" if paper else "")))
    if args.collect:
        return _collect(experiment, store, request)
    source = None if args.data is None else Path(args.data).resolve()
    specs = experiment.specs(request)
    data = source if paper and source is not None else store.data.resolve()
    if args.plan or args.slurm:
        return _plan(experiment, specs, request, store, data, source, args)
    mine = [spec for spec in specs if args.run in (None, spec.id)]
    if not mine:
        raise ValueError(f"--run must be the id of a run of the plan ({len(specs)} of them), got {args.run!r}.")
    if experiment.prepare is not None:
        experiment.prepare(source, store.data, request)
    if not paper:
        one_thread()
    keep = args.keep or paper
    if args.run is not None:
        print(f"run {args.run} {do_run(experiment, mine[0], store, data, keep=keep)}")
        return 0
    errors = run_pool(experiment, specs, store, data, jobs=jobs, keep=keep, added=args.add)
    for run, reason in errors.items():
        print(f"run {run} failed: {reason.splitlines()[-1]}; all of it is in {store.folder(run) / 'error.txt'}")
    return _collect(experiment, store, request, specs) or int(bool(errors))


def wanted(experiment: Experiment, args: Any) -> Request:
    """The request in the arguments, checked."""
    checks.one_of("--scale", args.scale, experiment.seeds)
    if args.seeds is not None:
        checks.positive_int("--seeds", args.seeds)
    if args.methods and not experiment.methods:
        raise ValueError(f"--methods must be left out for {experiment.name}, which has no choice, got {args.methods}.")
    for method in args.methods or ():
        checks.one_of("--methods", method, experiment.methods)
    return Request(scale=args.scale, seeds=args.seeds or 0, methods=args.methods)


def _collect(experiment: Experiment, store: Store, request: Request, specs: Sequence[RunSpec] | None = None) -> int:
    found = [row for row in store.collect().values() if row["experiment"] == experiment.name]
    results = planned(experiment, found, request, specs)
    if not results:
        raise ValueError(f"--out must be a folder with finished runs, but {store.path} has none of {experiment.name}.")
    print(experiment.collect(results, store.path))
    print(f"results     {store.table}")
    if len(results) < len(found):
        others = len(found) - len(results)
        print(f"            {others} of {len(found)} runs belong to another plan and to no table")
    return 0


def _plan(
    experiment: Experiment,
    specs: list[RunSpec],
    request: Request,
    store: Store,
    data: Path,
    source: Path | None,
    args: Any,
) -> int:
    write_plan(specs, store, data)
    for line in describe(experiment, specs, request, store.results()):
        print(line)
    print(f"plan        {store.plan / 'ID.yaml'}, one per run")
    if args.slurm:
        _slurm(specs, store, args)
    try:
        if experiment.prepare is not None:
            experiment.prepare(source, store.data, request)
        print("data        complete")
    except ValueError as error:
        print(f"data        missing: {error}")
    return 0


def _slurm(specs: list[RunSpec], store: Store, args: Any) -> None:
    """The scripts of a job array; each task is this command with `--run`."""
    command = [sys.executable, "-m", "m3g", "reproduce", args.experiment, "--scale", args.scale]
    command += ["--out", str(store.path.resolve())]
    command += [] if args.data is None else ["--data", str(Path(args.data).resolve())]
    command += [] if args.add is None else ["--add", str(Path(args.add).resolve())]
    command += [] if args.seeds is None else ["--seeds", str(args.seeds)]
    command += [] if args.methods is None else ["--methods", *args.methods]
    left = [spec for spec in specs if not store.finished(spec.id)]
    script, submit = write_scripts(left, store, command, nodes=args.nodes, gpus=args.gpus, hours=args.hours)
    print(f"script      {script}, for {len(left)} runs\nsubmit      bash {submit}")


def _summary(args: Any) -> int:
    """One page of what is finished in the folders of all experiments."""
    folder = Path(args.out or "runs")
    print(summary(folder))
    print(f"page        {folder / 'summary.md'}")
    return 0
