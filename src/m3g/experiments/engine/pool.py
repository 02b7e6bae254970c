"""Execution of the runs of a plan: a single run, or all runs in a pool of processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING

from m3g.experiments.engine.registry import find
from m3g.experiments.engine.spec import Experiment, OnlyTrained, Result, RunSpec, Settings, place_files
from m3g.experiments.engine.store import Store

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

MAX_RESTARTS = 20  # maximum number of dead workers that a pool replaces


def do_run(experiment: Experiment, spec: RunSpec, store: Store, data: Path, *, keep: bool = False) -> str:
    """Execute one run; return its state.

    The state is `done` (by this call), `finished` (before this call), `busy` (executed by another process) or `waiting`
    (for the runs of its grid).
    """
    if store.finished(spec.id):
        return "finished"
    results = store.results()
    if any(run not in results for run in spec.needs):
        return "waiting"
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if distributed and int(os.environ["RANK"]) > 0:
        # Only the first process of a torchrun launch claims the run, evaluates and writes the result.
        with contextlib.suppress(OnlyTrained):
            settings = place_files(spec.resolved(spec.choose(results)), data)
            experiment.work(settings, store.folder(spec.id) / "work", data)
        return "done"
    with store.claim(spec.id) as claimed:
        if not claimed and distributed:
            raise ValueError(
                f"run {spec.id} must be executed by one torchrun launch at a time, but another process is executing it."
            )
        if not claimed:
            return "busy"
        if store.finished(spec.id):
            return "finished"
        chosen = spec.choose(results)
        settings = spec.resolved(chosen)
        start = time.perf_counter()
        work = store.folder(spec.id) / "work"
        equal = _equal_run(spec.experiment, settings, results.values())
        metrics = experiment.work(place_files(settings, data), work, data) if equal is None else equal["metrics"]
        seconds = time.perf_counter() - start if equal is None else equal["seconds"]
        store.save(
            spec.id,
            {
                "id": spec.id,
                "experiment": spec.experiment,
                "labels": spec.labels,
                "settings": settings,
                "chosen": chosen,
                "metrics": metrics,
                "seconds": round(seconds, 2),  # of the last attempt, or of the equal run
            },
        )
        if not keep:
            store.clear_work(spec.id)
    return "done"


def _equal_run(experiment: str, settings: Settings, results: Iterable[Result]) -> Result | None:
    """Return a finished run with the same settings, or None.

    For example, two runs with different grids have the same settings if the best value of both grids is the same.
    """
    return next((row for row in results if row["experiment"] == experiment and row["settings"] == settings), None)


def do_all(
    experiment: Experiment,
    specs: Sequence[RunSpec],
    store: Store,
    data: Path,
    *,
    keep: bool = False,
    pause: float = 0.5,
) -> dict[str, str]:
    """Execute the unfinished runs in order, wait for runs of other processes, and return the errors by id."""
    errors: dict[str, str] = {}
    unfinished = list(specs)
    while unfinished:
        postponed, progressed = [], False
        for spec in unfinished:
            try:
                state = do_run(experiment, spec, store, data, keep=keep)
            except KeyboardInterrupt:
                raise
            except Exception as error:  # one failed run must not stop the others; reported at the end
                errors[spec.id] = "".join(traceback.format_exception_only(error)).strip()
                store.failed(spec.id, traceback.format_exc())
                state = "failed"
            if state in ("busy", "waiting"):
                postponed.append(spec)
            progressed = progressed or state == "done"
        unfinished = [spec for spec in postponed if not any(run in errors for run in spec.needs)]
        if unfinished and not progressed:
            time.sleep(pause)
    return errors


def end_with_parent() -> None:
    """End this process as soon as its parent process has ended, even if the parent was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _worker(name: str, specs: list[RunSpec], store: Path, data: Path, keep: bool, added: str | None) -> None:
    import torch

    end_with_parent()
    torch.set_num_threads(1)
    experiment = find(name)
    if experiment.extend is not None:
        experiment.extend(added, None, data)
    do_all(experiment, specs, Store(store), data, keep=keep)


def run_pool(
    experiment: Experiment,
    specs: Sequence[RunSpec],
    store: Store,
    data: Path,
    *,
    jobs: int,
    keep: bool = False,
    added: str | None = None,
    report: Callable[[str], None] = print,
) -> dict[str, str]:
    """Execute all runs with `jobs` processes and one progress display; return the errors by id.

    With `jobs=1`, all runs are executed in this process. Otherwise, up to `MAX_RESTARTS` killed workers are replaced.
    `added` is the file of the user's data sets and losses, which every worker requires.
    """
    if jobs == 1:
        with Progress(specs, store, report) as progress:
            errors: dict[str, str] = {}
            for spec in specs:
                if not any(run in errors for run in spec.needs):
                    errors.update(do_all(experiment, [spec], store, data, keep=keep))
                    progress.show()
            return errors
    context = multiprocessing.get_context("spawn")

    def start() -> SpawnProcess:
        args = (experiment.name, list(specs), store.path, data, keep, added)
        process = context.Process(target=_worker, args=args, daemon=True)
        process.start()
        return process

    workers, deaths = [start() for _ in range(jobs)], 0
    with Progress(specs, store, report) as progress:
        while workers:
            time.sleep(0.2)
            progress.show()
            for worker in [worker for worker in workers if not worker.is_alive()]:
                workers.remove(worker)
                if worker.exitcode != 0:
                    deaths += 1
                    if deaths > MAX_RESTARTS:
                        for other in workers:
                            other.terminate()
                        raise ValueError(
                            f"workers must stay alive, but {deaths} ended early: check memory and signals."
                        )
                    workers.append(start())
    errors = store.errors()
    attempted = [spec.id for spec in specs if not any(run in errors for run in spec.needs)]
    return {run: errors[run].splitlines()[-1] for run in attempted if run in errors}


class Progress:
    """Progress display of a pool: a bar in a terminal, otherwise lines.

    There is at most one line per 5 % of the runs (rounded down), or per run if there are fewer than 40.
    """

    def __init__(self, specs: Sequence[RunSpec], store: Store, report: Callable[[str], None]) -> None:
        self.ids, self.store, self.report = [spec.id for spec in specs], store, report
        self.bar: Bar | None = None
        self.reported = -1
        self.began, self.first = time.monotonic(), self.count()

    def count(self) -> int:
        known = self.store.results()
        return sum(run in known for run in self.ids)

    def __enter__(self) -> Progress:
        if sys.stdout.isatty():
            from rich.progress import MofNCompleteColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self.bar = Bar(*Bar.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
            self.bar.start()
            self.task = self.bar.add_task("runs", total=len(self.ids), completed=self.first)
        self.show()
        return self

    def show(self) -> None:
        done = self.count()
        if self.bar is not None:
            self.bar.update(self.task, completed=done)
        elif done != self.reported and (done == len(self.ids) or done - self.reported >= max(1, len(self.ids) // 20)):
            each = (time.monotonic() - self.began) / max(done - self.first, 1)
            left = f", about {each * (len(self.ids) - done) / 60:.0f} minutes left" if done > self.first else ""
            self.report(f"{done} of {len(self.ids)} runs finished{left}")
            self.reported = done

    def __exit__(self, *_: object) -> None:
        self.show()
        if self.bar is not None:
            self.bar.stop()


def one_thread() -> None:
    """Use one thread, because more do not speed up small operations, and results depend on the number of threads."""
    import torch

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
