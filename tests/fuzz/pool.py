"""Random problems in several processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from functools import partial

import torch

from fuzz.cases import draw
from fuzz.outcome import Outcome, Tried
from fuzz.problems import simplest, try_case


def one_problem(seed: int, solver: str | None) -> Tried:
    """Test a random problem; after a failure, find the simplest one that fails in the same way."""
    case = draw(seed, solver=solver)
    outcome = try_case(case)
    group = f"{'loss' if case.loss else 'solve'}, {case.solver}"
    if outcome.kind != "failed":
        return Tried(group, outcome)
    case = simplest(case)
    return Tried(
        group, Outcome("failed", try_case(case).text), f"PYTHONPATH=tests python -m fuzz --case '{case.as_json()}'"
    )


def problems(count: int, *, first: int, solver: str | None, workers: int) -> Iterator[Tried]:
    seeds = range(first, first + count)
    with multiprocessing.get_context("spawn").Pool(workers, initializer=_one_thread) as pool:
        yield from pool.imap_unordered(partial(one_problem, solver=solver), seeds, chunksize=16)


def _one_thread() -> None:
    torch.set_num_threads(1)
