"""A short seeded part of `make fuzz`, and problems on which it once failed."""

import pytest

from fuzz.cases import Case, draw
from fuzz.problems import try_case

# Weights of many magnitudes exceeded the range of the kernels, and the result was NaN.
ONCE_FAILED = [
    Case(12, (1, 3, 3), 5, 3.0, "cv-algorithm2", 0.0022, 1e-8, weights="tiny"),
    Case(2394, (6, 6, 6, 6), 2, 0.3, "coulomb", 0.0096, 1e-3, solver="factored", weights="tiny"),
    Case(2645, (3, 4), 2, 0.1, "coulomb", 0.0057, 1e-5, weights="tiny"),
    # A scaling that underflowed to 0 after all steps, with a potential of minus infinity.
    Case(2000050, (2, 29), 3, 0.3, "cv-algorithm2", 19700.209141430725, 1e-3, weights="tiny", mass=1e-9, scale=1e3),
    # A list solved at its first point had a mass of e^89: the scalings of view 0 exceeded the range of float32.
    Case(
        *(503006, (2,) * 8, 3, 0.3, "cv-algorithm2", 0.0082656267662833, 1e-5),
        dtype="float32",
        solver="sampled",
        masked=True,
        loss=True,
    ),
]


@pytest.mark.parametrize("solver", ["auto", "factored", "dense", "sinkhorn", "sampled"])
def test_random_problems_are_solved_or_raise_one_sentence(solver):
    outcomes = {seed: try_case(draw(seed, solver=solver)) for seed in range(7000, 7020)}
    failed = {seed: outcome.text for seed, outcome in outcomes.items() if outcome.kind == "failed"}
    assert not failed
    assert sum(outcome.kind == "held" for outcome in outcomes.values()) >= 8


@pytest.mark.parametrize("case", ONCE_FAILED, ids=lambda case: f"{case.cost}-{case.k}")
def test_problems_that_once_failed_are_solved(case):
    assert try_case(case).kind == "held"
