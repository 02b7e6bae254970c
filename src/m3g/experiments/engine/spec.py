"""Definition of experiments: a list of runs, each with settings and an id that is derived from them."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypedDict, cast

if TYPE_CHECKING:
    from typing_extensions import Unpack

Settings: TypeAlias = dict[str, Any]  # nested plain values, as in a YAML file
Change: TypeAlias = Mapping[str, float]  # values of a grid by dotted name: `{"loss_options.epsilon": 0.1}`


class Labels(TypedDict, total=False):
    """Position of a run in the tables. The values of a grid are labels too, see `grid_values`.

    Attributes:
        arm: the loss or method, possibly with its options.
        data: the data set.
        seed: the seed, which usually also determines the split.
        stage: `grid` (evaluates a setting), `test`, `control` (other conditions), `reference`, `length`
            (other numbers of steps).
        control: the conditions of a control.
        held_out, unseen: the domain or vendor that is excluded from training.
        k, students: number of views; number of student views, or `leave one out`.
        steps: number of optimiser steps.
        epsilon, value, dropout: settings of the arm.
        share: fraction of swapped entries.
        mismatch: whether mismatches are detected.
    """

    arm: str
    data: str
    seed: int
    stage: str
    control: str
    held_out: str
    unseen: str
    k: int
    students: int | str
    steps: int
    epsilon: float
    value: float
    dropout: float
    share: float
    mismatch: bool


class Result(TypedDict):
    """Stored result of a run; the metrics are those that `work` of the experiment returns."""

    id: str
    experiment: str
    labels: Labels
    settings: Settings
    chosen: dict[str, float] | None
    metrics: Mapping[str, Any]
    seconds: float


def grid_values(labels: Labels) -> dict[str, float]:
    """Return the labels of a run that are values of a grid."""
    return {name: cast(float, value) for name, value in labels.items() if "." in name}


class OnlyTrained(Exception):
    """Raised after training in all processes of a torchrun launch except the first, which evaluates."""


class Frozen(dict[str, object]):
    """Immutable dictionary.

    Example:
        >>> frozen({"seed": [1, {"a": 2}]})["seed"] = 3
        Traceback (most recent call last):
            ...
        TypeError: the settings and labels of a run cannot be changed: see RunSpec.with_changes
    """

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError("the settings and labels of a run cannot be changed: see RunSpec.with_changes")

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[type[Frozen], tuple[dict[str, object]]]:
        return Frozen, (dict(self),)


def frozen(content: object) -> object:
    """Return an immutable copy of nested settings; lists become tuples, which does not change the id."""
    if isinstance(content, Mapping):
        return Frozen({name: frozen(value) for name, value in content.items()})
    return tuple(frozen(value) for value in content) if isinstance(content, (list, tuple)) else content


def copied(content: object, convert: Callable[[str], str] = str) -> object:
    """Return a mutable copy of nested settings, with its strings converted."""
    if isinstance(content, str):
        return convert(content)
    if isinstance(content, Mapping):
        return {name: copied(value, convert) for name, value in content.items()}
    return [copied(value, convert) for value in content] if isinstance(content, (list, tuple)) else content


def merged(base: Mapping[str, object], change: Mapping[str, object]) -> Settings:
    """Return nested settings with some of them changed.

    Example:
        >>> merged({"optim": {"eps": 1, "lr": 2}, "seed": 0}, {"optim": {"lr": 3}})
        {'optim': {'eps': 1, 'lr': 3}, 'seed': 0}
    """
    result = dict(base)
    for name, value in change.items():
        old = result.get(name)
        result[name] = merged(old, value) if isinstance(value, Mapping) and isinstance(old, Mapping) else value
    return result


@dataclass(frozen=True)
class Candidate:
    """A setting in a grid, and the ids of the runs that evaluate it."""

    change: Change
    evaluated_by: Sequence[str]


@dataclass(frozen=True)
class RunSpec:
    """One run of an experiment.

    Args:
        experiment: the experiment's name.
        settings: everything that determines the result; `config`, if it is set, contains the differences from the
            defaults of `m3g train`. Files are relative to `{data}`, so that the id is the same on every machine. A
            frozen copy is stored.
        labels: position of the run in the tables (`arm`, `data`, `seed`, ...); they do not change the id.
        candidates: settings of a grid, of which the run uses the best on validation rows; empty for none.
        then: further settings that are evaluated together with the best candidate; the run also uses the best of them
            if it improves the score.

    Example:
        >>> spec = RunSpec("demo", {"config": {"seed": 1}}, {"arm": "m3g"})
        >>> spec.id == RunSpec("demo", {"config": {"seed": 1}}, {"arm": "other"}).id
        True
        >>> spec.id == RunSpec("demo", {"config": {"seed": 2}}, {"arm": "m3g"}).id
        False
    """

    experiment: str
    settings: Settings
    labels: Labels
    candidates: tuple[Candidate, ...] = ()
    then: tuple[Candidate, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", frozen(self.settings))
        object.__setattr__(self, "labels", frozen(self.labels))

    @cached_property
    def id(self) -> str:
        """Return the first digits of a hash of everything except the labels."""
        groups = self.candidates, self.then
        candidates, then = ([[dict(one.change), list(one.evaluated_by)] for one in group] for group in groups)
        content = {"experiment": self.experiment, "settings": self.settings, "candidates": candidates}
        content |= {"then": then} if then else {}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def needs(self) -> list[str]:
        """Return the runs that must be finished before this one."""
        return [run for candidate in (*self.candidates, *self.then) for run in candidate.evaluated_by]

    def choose(self, results: Mapping[str, Result]) -> dict[str, float] | None:
        """Return the changes with the best mean validation score; None without a grid.

        Of several best candidates, the middle one is chosen.
        """
        missing = [run for run in self.needs if run not in results]
        if missing:
            raise ValueError(f"run {self.id} must wait for its grid, of which {len(missing)} runs are not finished.")

        def score(candidate: Candidate) -> float:
            return validation(results[run] for run in candidate.evaluated_by)

        def best(candidates: Sequence[Candidate]) -> Candidate:
            equal = [candidate for candidate in candidates if score(candidate) == max(map(score, candidates))]
            return equal[(len(equal) - 1) // 2]  # if one option is varied, its middle value is farthest from worse ones

        if not self.candidates:
            return None
        first, second = best(self.candidates), best(self.then or self.candidates)
        return {**first.change, **(second.change if score(second) > score(first) else {})}

    def resolved(self, changes: Change | None) -> Settings:
        """Return the settings with changes, given by dotted names.

        A name with a dot whose first part is a key of the settings is relative to them, any other name to `config`.
        """
        settings = cast(Settings, copied(self.settings))
        for name, value in (changes or {}).items():
            *path, last = name.split(".")
            group = settings if path and path[0] in settings else settings["config"]
            for part in path:
                group = group.setdefault(part, {})
            group[last] = value
        return settings

    def with_changes(self, settings: Settings | None = None, /, **labels: Unpack[Labels]) -> RunSpec:
        """Return the run with some of its nested settings and labels changed."""
        return replace(self, settings=merged(self.settings, settings or {}), labels={**self.labels, **labels})


def validation(results: Iterable[Result]) -> float:
    """Return the mean of the metric `validation` over runs; a run without it counts as 0."""
    return statistics.fmean(result["metrics"].get("validation") or 0.0 for result in results)


def place_files(settings: Settings, data: str | Path) -> Settings:
    """Replace every `{data}` in settings with a folder.

    Example:
        >>> place_files({"root": "{data}/pacs"}, "/sets")
        {'root': '/sets/pacs'}
    """
    return cast(Settings, copied(settings, lambda text: text.replace("{data}", str(data))))


@dataclass(frozen=True)
class Request:
    """The part of an experiment that the user requested.

    Args:
        scale: `laptop` or `paper`.
        seeds: the number of seeds; 0 means the default of the experiment.
        methods: the methods; None means all.
        sets: the data sets; None means all.
        only: names of added data sets and losses, to which the plan is restricted; None means no restriction.
        miniature: a few steps on tiny networks, for the tests.
    """

    scale: str = "laptop"
    seeds: int = 0
    methods: Sequence[str] | None = None
    sets: Sequence[str] | None = None
    only: Collection[str] | None = None
    miniature: bool = False

    def wants(self, method: str) -> bool:
        return self.methods is None or method in self.methods

    def includes(self, labels: Labels) -> bool:
        """Return whether a run with these labels uses a requested data set and, with `only`, an added set or loss."""
        data, arm = labels.get("data"), str(labels.get("arm", "")).split(",")[0]
        return (self.sets is None or data in self.sets) and (self.only is None or bool({data, arm} & set(self.only)))


Prepare = Callable[[Path | None, Path], None]  # `prepare(source, target)`, see `Experiment.sets`


@dataclass(frozen=True)
class Experiment:
    """Definition of a table or figure.

    Args:
        name: its name on the command line.
        runs: the runs of a request, in order of execution. The label `data` names the data set of a run, if it has one.
        work: `work(settings, folder, data)` executes one run and returns its metrics.
        collect: `collect(results, folder)` writes tables and figures of the finished runs and returns the text.
        sets: returns the data sets of a scale, each with a function `prepare(source, target)`. This function creates
            the files that the runs read if these do not exist (at paper scale, it only checks them), or raises
            `MissingData`. `source` is the user's `--data` folder or None. Empty if the experiment reads no files.
        extend: `extend(file, source, target)` registers the user's sets and losses, from the Python file of `--add` and
            from the data folder, and returns the names in the Python file.
        methods: the names that `--methods` accepts.
        seconds: estimated seconds of one laptop run, used until a run is finished.
        seeds: the default number of seeds for every supported scale.
    """

    name: str
    runs: Callable[[Request], Iterable[RunSpec]]
    work: Callable[[Settings, Path, Path], Mapping[str, object]]
    collect: Callable[[list[Result], Path], str]
    sets: Callable[[str], Mapping[str, Prepare]] = lambda scale: {}
    extend: Callable[[str | None, Path | None, Path], set[str]] | None = None
    methods: Collection[str] = ()
    seconds: float = 30.0
    seeds: Mapping[str, int] = field(default_factory=lambda: {"laptop": 1})

    def specs(self, request: Request) -> list[RunSpec]:
        """Return the runs of a request, each once even if it appears in several tables."""
        request = replace(request, seeds=request.seeds or self.seeds[request.scale])
        return list({spec.id: spec for spec in self.runs(request) if request.includes(spec.labels)}.values())
