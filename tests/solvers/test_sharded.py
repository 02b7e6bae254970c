"""A shared solve equals that of one process."""

import pytest
import torch

import forked
from solvers import sharing


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def ranks(request, tmp_path_factory):
    return forked.in_group(sharing.compute, request.param, tmp_path_factory.mktemp("sharing"))


@pytest.mark.parametrize("case", list(sharing.cases()), ids=str)
def test_a_shared_solve_is_that_of_one_process(ranks, case):
    expected = sharing.solved(case, lambda solver: solver)
    for results in ranks:
        torch.testing.assert_close(results[str(case)], expected, rtol=1e-7, atol=1e-9)
