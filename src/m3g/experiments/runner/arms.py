"""Grids of settings, and the runs that evaluate them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from m3g.experiments.engine.spec import Candidate, Change, Labels, Request, RunSpec

TEMPERATURE, RATE = "loss_options.temperature", "optim.learning_rate"
# The tuned option and its values, by family of losses: the name up to the first hyphen, such as "infonce".
Values = Mapping[str, tuple[str, Sequence[float]]]
TEMPERATURES = (0.03, 0.06, 0.12, 0.25, 0.5)  # the common grid; some experiments extend or replace it
LENGTHS = (50, 100, 400, 800)  # other numbers of steps; some experiments have their own


def grid(method: str, values: Values, rates: Sequence[float]) -> list[Change]:
    """Return the grid of a method: learning rates and, if its family is in `values`, epsilons or temperatures.

    Example:
        >>> grid("byol-pwe", {"m3g": ("epsilon", (0.1,))}, (1e-3, 3e-3))
        [{'optim.learning_rate': 0.001}, {'optim.learning_rate': 0.003}]
    """
    tuned = values.get(method.split("-")[0])
    if tuned is None:
        return [{"optim.learning_rate": rate} for rate in rates]
    return [{f"loss_options.{tuned[0]}": value, "optim.learning_rate": rate} for value in tuned[1] for rate in rates]


def grid_runs(changes: Sequence[Change], runs: Sequence[RunSpec]) -> tuple[list[RunSpec], tuple[Candidate, ...]]:
    """Return `runs` with each of the `changes`, and one candidate per change; later runs use the best candidate."""
    all_runs, candidates = [], []
    for change in changes:
        changed_runs = [
            replace(
                run,
                settings=run.resolved(change),
                labels=cast(Labels, {**run.labels, "stage": "grid", **change}),
            )
            for run in runs
        ]
        all_runs += changed_runs
        candidates.append(Candidate(change, [run.id for run in changed_runs]))
    return all_runs, tuple(candidates)


@dataclass(frozen=True)
class Tuned:
    """The runs of a grid and its candidates; later runs use the best candidate.

    `candidates` and `then` are those of `RunSpec`: `then` are evaluated together with the best of `candidates`.
    """

    runs: list[RunSpec]
    candidates: tuple[Candidate, ...]
    then: tuple[Candidate, ...] = ()

    def chosen(self, run: RunSpec) -> RunSpec:
        """Return a run that uses the best setting of the grid."""
        return replace(run, candidates=self.candidates, then=self.then)


def temperature_then_rate(
    run: RunSpec, rates: Sequence[float], *, has_temperature: bool, temperatures: Sequence[float] = TEMPERATURES
) -> Tuned:
    """Return a grid of temperatures with the first rate, followed by the other rates with the best temperature.

    The learning rate of `run` must be the first of `rates`. Without a temperature the grid has only the rates.
    """
    if not has_temperature:
        return Tuned(*grid_runs([{RATE: rate} for rate in rates], [run]))
    first, candidates = grid_runs([{TEMPERATURE: value} for value in temperatures], [run])
    second, then = grid_runs([{RATE: rate} for rate in rates[1:]], [replace(run, candidates=candidates)])
    return Tuned([*first, *second], candidates, then)


def other_lengths(run: RunSpec, request: Request, lengths: Sequence[int] = LENGTHS) -> list[RunSpec]:
    """Return copies of a run with other numbers of steps, each with its complete schedule."""
    return [
        run.with_changes(
            {"config": {"loop": {"max_steps": steps // 50 if request.miniature else steps}}},
            stage="length",
            steps=steps,
        )
        for steps in lengths
    ]
