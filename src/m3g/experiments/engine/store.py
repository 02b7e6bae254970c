"""Storage of the runs of an experiment: one folder per run, with one result file if it is finished.

OUT/plan/ID.yaml           with `--plan` or `--slurm`: the settings of each run before tuning, for `m3g train --config`
OUT/runs/ID/result.json    the result of a run; its presence means "finished"
OUT/runs/ID/work/          checkpoints of an unfinished run
OUT/results.jsonl          one line per finished run, written when results are collected; its runs count as finished
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from m3g.experiments.engine.spec import Result
from m3g.training.runs.files import remove_leftovers, write_json, write_text


class Store:
    """The folder of an experiment.

    Every run writes only to its own folder, and files are written atomically, so any number of workers and collectors
    can use a store at once.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.plan = self.path / "plan"
        self.data = self.path / "data"
        self.table = self.path / "results.jsonl"
        self._known: dict[str, Result] = {}  # finished runs never change, so each result.json is read once
        self._read: tuple[int, int] | None = None  # size and time of the table when it was read

    def folder(self, run: str) -> Path:
        return self.path / "runs" / run

    def finished(self, run: str) -> bool:
        return run in self._collected() or (self.folder(run) / "result.json").is_file()

    def results(self) -> dict[str, Result]:
        """Return the results of all finished runs by id, including those in `results.jsonl`."""
        known = self._collected()
        for file in sorted((self.path / "runs").glob("*/result.json")):
            if file.parent.name not in known:
                known[file.parent.name] = json.loads(file.read_text(encoding="utf-8"))
        return dict(known)

    def save(self, run: str, result: Result) -> None:
        write_json(self.folder(run) / "result.json", result)
        with contextlib.suppress(FileNotFoundError):
            (self.folder(run) / "error.txt").unlink()

    def failed(self, run: str, reason: str) -> None:
        write_text(self.folder(run) / "error.txt", reason + "\n")

    def errors(self) -> dict[str, str]:
        """Return the errors, by id, of the runs that failed and have not succeeded since."""
        files = (self.path / "runs").glob("*/error.txt")
        return {file.parent.name: file.read_text(encoding="utf-8").strip() for file in files}

    @contextlib.contextmanager
    def claim(self, run: str) -> Iterator[bool]:
        """Yield whether this process may execute a run; if so, no other process does until the end of the block."""
        folder = self.folder(run)
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            yield False
            return
        try:
            remove_leftovers(folder)
            yield True
        finally:
            lock.release()

    def clear_work(self, run: str) -> None:
        shutil.rmtree(self.folder(run) / "work", ignore_errors=True)

    def collect(self) -> dict[str, Result]:
        """Write all results to `results.jsonl` and return them.

        Lines are sorted by id, so that the same results always give the same file.
        """
        results = self.results()
        lines = [json.dumps(results[run], sort_keys=True, separators=(",", ":")) for run in sorted(results)]
        if lines:
            write_text(self.table, "\n".join(lines) + "\n")
        return results

    def _collected(self) -> dict[str, Result]:
        """Return the results that are in memory, after reading `results.jsonl` if it has changed."""
        if self.table.is_file():
            state = self.table.stat()
            if self._read != (state.st_size, state.st_mtime_ns):
                for line in self.table.read_text(encoding="utf-8").splitlines():
                    row: Result = json.loads(line)
                    self._known[row["id"]] = row
                self._read = state.st_size, state.st_mtime_ns
        return self._known
