"""A short seeded part of the random problems of the dense solver."""

import pytest

from fuzz.multiway import check, draw


@pytest.mark.parametrize("seed", range(20))
def test_random_multiway_problems_are_solved(seed):
    assert check(draw(seed)) is None
