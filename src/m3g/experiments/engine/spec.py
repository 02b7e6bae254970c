"""What an experiment is: a list of runs, each a configuration with an id made from its content."""

from __future__ import annotations

import copy
import hashlib
import json
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Settings = dict[str, Any]
Result = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A setting that may be chosen: what it changes (`"loss_options.epsilon": 0.1`), and the runs that tried it."""

    change: Mapping[str, Any]
    tried_by: Sequence[str]


@dataclass(frozen=True)
class RunSpec:
    """One run of an experiment.

    Args:
        experiment: the experiment's name.
        settings: everything that decides the result; `settings["config"]` holds what differs from the defaults of
            `m3g train`. Files are named relative to `{data}`, so that the id is the same on every machine.
        labels: where the run stands in the tables (`arm`, `split`, `seed`, ...); they do not change the id.
        candidates: settings from which the best on validation is taken before the run starts; empty for none.
        then: changes that were tried on top of that best one; the best of them is taken too, if it is better still.

    Example:
        >>> spec = RunSpec("demo", {"config": {"seed": 1}}, {"arm": "m3g"})
        >>> spec.id == RunSpec("demo", {"config": {"seed": 1}}, {"arm": "other"}).id
        True
        >>> spec.id == RunSpec("demo", {"config": {"seed": 2}}, {"arm": "m3g"}).id
        False
    """

    experiment: str
    settings: Settings
    labels: Mapping[str, Any]
    candidates: tuple[Candidate, ...] = ()
    then: tuple[Candidate, ...] = ()

    @property
    def id(self) -> str:
        content: dict[str, Any] = {"experiment": self.experiment, "settings": self.settings}
        content["candidates"] = [[dict(one.change), list(one.tried_by)] for one in self.candidates]
        if self.then:
            content["then"] = [[dict(one.change), list(one.tried_by)] for one in self.then]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def needs(self) -> list[str]:
        """The runs that must be finished before this one can start."""
        return [run for candidate in (*self.candidates, *self.then) for run in candidate.tried_by]

    def choose(self, results: Mapping[str, Result]) -> dict[str, Any] | None:
        """The changes whose runs are best on validation, mean over them; the first of equals. None without a choice."""
        if not self.candidates:
            return None
        missing = [run for run in self.needs if run not in results]
        if missing:
            raise ValueError(f"run {self.id} must wait for its grid, of which {len(missing)} runs are not finished.")

        def score(candidate: Candidate) -> float:
            return validation(results[run] for run in candidate.tried_by)

        first = max(self.candidates, key=score)
        second = max(self.then, key=score, default=first)
        return {**first.change, **(second.change if score(second) > score(first) else {})}

    def resolved(self, changes: Mapping[str, Any] | None) -> Settings:
        """The settings with some changes: of `config`, or of the part of the settings that they name."""
        settings = copy.deepcopy(self.settings)
        for name, value in (changes or {}).items():
            *path, last = name.split(".")
            place = settings if path and path[0] in settings else settings["config"]
            for part in path:
                place = place.setdefault(part, {})
            place[last] = value
        return settings


def validation(results: Iterable[Result]) -> float:
    """Mean of the runs' `validation`; a run that diverged counts as 0."""
    return statistics.fmean(result["metrics"].get("validation") or 0.0 for result in results)


def place_files(content: Any, data: str | Path) -> Any:
    """Settings with every `{data}` replaced by a folder.

    Example:
        >>> place_files({"root": "{data}/pacs"}, "/sets")
        {'root': '/sets/pacs'}
    """
    if isinstance(content, str):
        return content.replace("{data}", str(data))
    if isinstance(content, dict):
        return {name: place_files(value, data) for name, value in content.items()}
    return [place_files(value, data) for value in content] if isinstance(content, list) else content


@dataclass(frozen=True)
class Request:
    """What the user asks for: the scale, how many seeds, which methods (None for all)."""

    scale: str = "laptop"
    seeds: int | None = None
    methods: Sequence[str] | None = None
    miniature: bool = False  # a few steps on tiny networks, for the tests

    def wants(self, method: str) -> bool:
        return self.methods is None or method in self.methods


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Args:
        name, about: what the command line shows.
        runs: the runs that a request asks for, in the order in which they are best done.
        work: does one run: `work(settings, folder, data)` returns its metrics.
        collect: `collect(results, folder)` writes tables and figures of the finished runs; returns what to print.
        prepare: `prepare(source, target, request)` makes the files that the runs read, once; `source` is the user's
            `--data` folder or None.
        methods: the names that `--methods` takes.
        seconds: guess of one laptop run's seconds, used until some are finished.
    """

    name: str
    about: str
    runs: Callable[[Request], list[RunSpec]]
    work: Callable[[Settings, Path, Path], dict[str, Any]]
    collect: Callable[[list[Result], Path], str]
    prepare: Callable[[Path | None, Path, Request], None] | None = None
    methods: Collection[str] = ()
    seconds: float = 30.0
    scales: Sequence[str] = field(default=("laptop",))
