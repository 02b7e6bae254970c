"""Weights of the points: validation, equal sums and concatenation."""

import pytest
import torch

import m3g
from m3g.solvers.shared.weights import concatenated_weights, marginal_weights

CPU = torch.device("cpu")
UNIFORM = [torch.full((4,), 0.25)] * 3


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (UNIFORM[:2], "weights must be a sequence of 3 tensors, one per view, got 2"),
        (torch.rand(3, 4), "weights must be a sequence of 3 tensors, one per view, got a tensor"),
        ([*UNIFORM[:2], "abcd"], "weights must be tensors of numbers, got str 'abcd' in view 2"),
        ([*UNIFORM[:2], torch.full((5,), 0.2)], "weights must have 4 entries in view 2"),
        ([*UNIFORM[:2], torch.full((2, 4), 0.25)], r"weights must have shape \(4,\) in view 2, got shape"),
        ([*UNIFORM[:2], torch.full((4,), 0.5)], "weights must have the same sum in every view"),
        ([*UNIFORM[:2], torch.tensor([-0.5, 0.5, 0.5, 0.5])], "finite numbers of at least 0, got -0.5"),
        ([torch.full((4,), torch.inf)] * 3, "finite numbers of at least 0, got inf in view 0"),
        ([torch.zeros(4)] * 3, "weights must have a positive sum, got only zeros in view 0"),
        ([torch.tensor([1.0, 1e-200, 0.0, 0.0], dtype=torch.float64)] * 3, "weights must be 0 or at least 1e-100"),
    ],
)
def test_invalid_weights_are_named(weights, message):
    with pytest.raises(ValueError, match=message):
        marginal_weights(weights, (4, 4, 4), (), CPU)


def test_sums_that_differ_by_rounding_are_made_equal():
    rounded = [torch.full((4,), 0.25), torch.tensor([0.1, 0.2, 0.3, 0.40001])]
    first, second = marginal_weights(rounded, (4, 4), (), CPU)
    assert first.dtype == torch.float64
    assert float(second.sum()) == pytest.approx(float(first.sum()), abs=1e-15)
    assert marginal_weights(None, (4, 4), (), CPU) is None


def test_weights_are_concatenated_for_every_problem_of_a_batch():
    problem = m3g.CircularVariance()([torch.rand(2, 3, 5), torch.rand(2, 4, 5)])
    uniform = concatenated_weights(problem, None)
    torch.testing.assert_close(uniform, torch.cat([torch.full((2, 3), 1 / 3), torch.full((2, 4), 0.25)], 1).double())
    given = [torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.1, 0.2, 0.3, 0.4])]
    torch.testing.assert_close(concatenated_weights(problem, given, torch.float32), torch.cat(given).expand(2, 7))
