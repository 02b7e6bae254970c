"""All global generators are functions of seed, step and rank."""

import random

import numpy as np
import pytest
import torch

from m3g.training.loop.seeds import seed_everything


def drawn(*key):
    seed_everything(*key)
    return torch.rand(1).item(), np.random.random(), random.random()  # noqa: NPY002


def test_the_same_key_gives_the_same_numbers():
    assert drawn(3, 7, 1) == drawn(3, 7, 1)


@pytest.mark.parametrize("key", [(4, 7, 1), (3, 8, 1), (3, 7, 0)])
def test_seed_step_and_rank_all_matter(key):
    assert all(one != other for one, other in zip(drawn(3, 7, 1), drawn(*key), strict=True))
