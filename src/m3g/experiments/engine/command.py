"""Actions of `m3g reproduce`: plan, execute and collect the runs of an experiment, or write cluster scripts."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from m3g import _checks as checks
from m3g.experiments.engine.plan import describe, planned, write_plan
from m3g.experiments.engine.pool import do_run, one_thread, run_pool
from m3g.experiments.engine.registry import find
from m3g.experiments.engine.slurm import write_scripts
from m3g.experiments.engine.spec import Experiment, Request, RunSpec
from m3g.experiments.engine.store import Store
from m3g.experiments.engine.summary import summary
from m3g.experiments.sources.files import MissingData


def reproduce(args: Namespace) -> int:
    """Plan, run, collect, or write cluster scripts; return the exit code."""
    if args.experiment == "summary":
        return _summary(args)
    actions = [f"--{name}" for name in ("plan", "run", "collect", "slurm") if getattr(args, name)]
    if len(actions) > 1 and actions != ["--plan", "--slurm"]:
        raise ValueError(
            "--plan, --run, --collect and --slurm must not be combined, except --plan with --slurm, got "
            f"{' '.join(actions)}."
        )
    jobs = checks.positive_int("--jobs", args.jobs)
    checks.positive("--hours", args.hours)
    for name, least in (("nodes", 1), ("gpus", 0)):
        if getattr(args, name) < least:
            raise ValueError(f"--{name} must be at least {least}, got {getattr(args, name)}.")
    experiment = find(args.experiment)
    paper = args.scale == "paper"
    store = Store(args.out or Path("runs") / (experiment.name + ("-paper" if paper else "")))
    source = None if args.data is None else Path(args.data).resolve()
    added = _extend(experiment, args.add, source, store)
    request = build_request(experiment, args, added)
    if args.collect:
        return _collect(experiment, store, request)
    specs = experiment.specs(request)
    if not specs:
        raise ValueError(f"--methods and --sets must select at least one run of {experiment.name}, got none.")
    requested = [spec for spec in specs if args.run in (None, spec.id)]
    if not requested:
        raise ValueError(f"--run must be the id of one of the {len(specs)} planned runs, got {args.run!r}.")
    data = source if paper and source is not None else store.data.resolve()
    missing = prepare_sets(experiment, requested, request.scale, source, store.data)
    ready = [spec for spec in requested if spec.labels.get("data") not in missing]
    for name, reason in missing.items():
        print(f"skipped     {name}: {reason}")
    if args.plan or args.slurm:
        state = "missing: the plan includes all data sets as if they were available" if not ready else "complete"
        if ready and missing:
            state = "partly missing: the plan omits the skipped data sets"
        return _plan(experiment, ready or specs, request, store, data, state, args)
    if not ready:
        raise ValueError(f"--data must contain at least one data set of {experiment.name}, got none: see above.")
    if not paper:
        one_thread()
    keep = args.keep or paper
    if args.run is not None:
        print(f"run {args.run} {do_run(experiment, ready[0], store, data, keep=keep)}")
        return 0
    errors = run_pool(experiment, ready, store, data, jobs=jobs, keep=keep, added=args.add)
    for run, reason in errors.items():
        print(f"run {run} failed: {reason.splitlines()[-1]}; see {store.folder(run) / 'error.txt'}")
    return _collect(experiment, store, request, specs) or int(bool(errors))


def _extend(experiment: Experiment, file: str | None, source: Path | None, store: Store) -> set[str]:
    """Register the user's data sets and losses; return the names of those in the file of `--add`."""
    if experiment.extend is None:
        if file is not None:
            raise ValueError(
                f"--add must be omitted for {experiment.name}, got {file!r}: only the experiment views accepts it."
            )
        return set()
    return experiment.extend(file, source, store.data)


def build_request(experiment: Experiment, args: Namespace, added: set[str]) -> Request:
    """Validate the arguments and return them as a `Request`."""
    checks.one_of("--scale", args.scale, experiment.seeds)
    if args.seeds is not None:
        checks.positive_int("--seeds", args.seeds)
    for option, given, known in (
        ("methods", args.methods, experiment.methods),
        ("sets", args.sets, experiment.sets(args.scale)),
    ):
        if given and not known:
            raise ValueError(f"--{option} must be omitted for {experiment.name}, got {given}: it is not supported.")
        for name in given or ():
            checks.one_of(f"--{option}", name, known)
    return Request(args.scale, args.seeds or 0, args.methods, args.sets, added or None)


def prepare_sets(
    experiment: Experiment, specs: Sequence[RunSpec], scale: str, source: Path | None, target: Path
) -> dict[str, str]:
    """Create the files that the runs read; return the reason for each missing data set, by name."""
    used = {spec.labels.get("data") for spec in specs}
    missing = {}
    for name, prepare in experiment.sets(scale).items():
        if name in used:
            try:
                prepare(source, target)
            except MissingData as error:
                missing[name] = str(error)
    return missing


def _collect(experiment: Experiment, store: Store, request: Request, specs: Sequence[RunSpec] | None = None) -> int:
    rows = [row for row in store.collect().values() if row["experiment"] == experiment.name]
    results = planned(experiment, rows, request, specs)
    if not results:
        raise ValueError(
            f"--out must be a folder with finished runs of the plan of {experiment.name}, got none in {store.path}."
        )
    print(experiment.collect(results, store.path))
    print(f"results     {store.table}")
    if len(results) < len(rows):
        others = len(rows) - len(results)
        print(f"            {others} of {len(rows)} runs belong to another plan and are not in the tables")
    return 0


def _plan(
    experiment: Experiment,
    specs: Sequence[RunSpec],
    request: Request,
    store: Store,
    data: Path,
    state: str,
    args: Namespace,
) -> int:
    write_plan(specs, store, data)
    for line in describe(experiment, specs, request, store.results()):
        print(line)
    print(f"plan        {store.plan / 'ID.yaml'}, one per run")
    if args.slurm:
        _slurm(specs, store, args)
    print(f"data        {state}")
    return 0


def _slurm(specs: Sequence[RunSpec], store: Store, args: Namespace) -> None:
    """Write the scripts of a job array; each task is this command with `--run` instead of `--slurm`."""
    command = [sys.executable, "-m", "m3g", "reproduce", args.experiment, "--scale", args.scale]
    command += ["--out", str(store.path.resolve())]
    command += [] if args.data is None else ["--data", str(Path(args.data).resolve())]
    command += [] if args.add is None else ["--add", str(Path(args.add).resolve())]
    command += [] if args.seeds is None else ["--seeds", str(args.seeds)]
    command += [] if args.methods is None else ["--methods", *args.methods]
    command += [] if args.sets is None else ["--sets", *args.sets]
    command += ["--keep"] if args.keep else []
    unfinished = [spec for spec in specs if not store.finished(spec.id)]
    script, submit = write_scripts(unfinished, store, command, nodes=args.nodes, gpus=args.gpus, hours=args.hours)
    print(f"script      {script}, for {len(unfinished)} runs\nsubmit      bash {submit}")


def _summary(args: Namespace) -> int:
    """Write one page of the finished results of all experiments."""
    folder = Path(args.out or "runs")
    print(summary(folder))
    print(f"page        {folder / 'summary.md'}")
    return 0
