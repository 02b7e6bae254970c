"""Shared solves equal those of one process with the full batch; if one process fails, all raise."""

import pytest
import torch

import forked
import m3g
from losses import sharing

pytestmark = pytest.mark.filterwarnings("ignore::m3g.solvers.RangeWarning")


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def ranks(request, tmp_path_factory):
    return forked.in_group(sharing.compute, request.param, tmp_path_factory.mktemp("sharing"))


@pytest.mark.parametrize("case", list(sharing.cases()), ids=str)
def test_value_and_gradient_are_those_of_one_process(ranks, case):
    solver, k, masked, with_teacher = case
    loss = m3g.M3GLoss(0.1, solver=solver)
    value, gradient = sharing.loss_and_gradient(loss, *sharing.batch(k, len(ranks), masked, with_teacher))
    for rank, results in enumerate(ranks):
        rows = gradient.chunk(len(ranks), 1)[rank]
        torch.testing.assert_close(results[str(case)], (value, rows), rtol=1e-7, atol=1e-9)


def test_if_one_process_fails_all_raise(ranks):
    for rank, results in enumerate(ranks):
        failures = results["failures"]
        expected = "OutOfMemoryError" if rank == 1 else "SharedSolveError: 1 of"
        assert failures["out of memory"].startswith(expected)
        assert failures["nan"] == ranks[0]["failures"]["nan"]
        assert failures["nan in the views"] == ranks[0]["failures"]["nan in the views"]
        assert failures["nan in the views"].startswith("ValueError: views must be finite")
        for after in ("after out of memory", "after nan"):
            assert torch.isfinite(failures[after])


def test_points_are_sent_in_bfloat16(ranks):
    views, _, _ = sharing.batch(3, len(ranks), False, False)
    value, gradient = sharing.loss_and_gradient(m3g.M3GLoss(0.1), views.bfloat16().double(), None, None)
    for rank, results in enumerate(ranks):
        torch.testing.assert_close(results["bfloat16"][0], value)
        rows = len(ranks) * gradient.chunk(len(ranks), 1)[rank]
        torch.testing.assert_close(results["bfloat16"][1], rows, rtol=0.02, atol=0.02 * rows.abs().max().item())
        assert not torch.equal(results["bfloat16"][1], rows)
