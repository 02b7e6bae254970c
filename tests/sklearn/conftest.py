"""Views of the same objects, as arrays and as DataFrames."""

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def views():
    rng = np.random.default_rng(0)
    objects = rng.standard_normal((90, 4))
    return [objects @ rng.standard_normal((4, d)) + 0.1 * rng.standard_normal((90, d)) for d in (5, 6, 7)]


@pytest.fixture
def frames():
    """Three views of 90 objects with an index, and columns named after the view."""
    rng = np.random.default_rng(0)
    objects, index = rng.standard_normal((90, 4)), [f"object{i}" for i in range(90)]
    return {
        name: pd.DataFrame(objects @ rng.standard_normal((4, d)), index, [f"{name}{j}" for j in range(d)])
        for name, d in (("sound", 5), ("shape", 6), ("colour", 7))
    }
