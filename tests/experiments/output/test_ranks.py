"""Ranks over data sets."""

import numpy as np
import pytest

from m3g.experiments.output.ranks import critical_difference, groups


def test_the_critical_difference_is_that_of_demsar():
    assert critical_difference(10, 14) == pytest.approx(3.164 * np.sqrt(10 * 11 / (6 * 14)), abs=0.01)  # Demsar's table
    assert groups({"a": 1.0, "b": 3.0, "c": 3.5}, 1.0) == [["a"], ["b", "c"]]
