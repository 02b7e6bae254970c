"""Pair kernels: their dtype and range, and initial scalings that balance them."""

import pytest
import torch

import m3g
import reference
from m3g.solvers.factored.kernels import balance, balanced_start, pair_kernels

LARGE = m3g.PairwiseCost("sqeuclidean")(100 * reference.noisy_views(3, 4, 3))


def kernels(problem, **options):
    return pair_kernels(problem, None, **{"epsilon": 0.1, "tol": 1e-3, "read_values": True, **options})


def test_kernels_are_exponentials_of_the_costs():
    problem = m3g.CircularVariance()(reference.noisy_views(3, 4, 5))
    built = kernels(problem)
    total = sum(
        exponent.reshape([1] + [4 if a in edge else 1 for a in range(3)])
        for edge, exponent in ((edge, matrix.log()) for edge, matrix in built.matrices.items())
    )
    if built.shift is not None:
        for l, part in enumerate(built.shift.split([4, 4, 4], 1)):
            total = total - part.reshape([1] + [4 if a == l else 1 for a in range(3)]) / 0.1
    torch.testing.assert_close(-0.1 * total, problem.dense())


@pytest.mark.parametrize(("tol", "dtype"), [(1e-3, torch.float32), (1e-7, torch.float64)])
def test_a_small_tolerance_requires_float64(tol, dtype):
    problem = m3g.CircularVariance()(reference.noisy_views(3, 4, 5, dtype=torch.float32))
    built = kernels(problem, tol=tol)
    assert built.dtype == built.target.dtype == dtype


def test_exponents_beyond_the_range_are_kept_as_logarithms():
    built = kernels(LARGE)
    assert not built.in_range
    assert built.reach > 1e4
    assert min(float(matrix.min()) for matrix in built.matrices.values()) < -1e3
    assert kernels(LARGE, epsilon=1e4).in_range
    assert kernels(LARGE, read_values=False).reach == 0  # without reads, the range is unknown


@pytest.mark.parametrize("steps", [1, 2, 50])
def test_balancing_makes_row_and_column_sums_more_equal(steps):
    kernel = (torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2).exp()
    left, right = balance(kernel, steps)
    scaled = kernel * (-left).exp() * (-right).exp().mT
    rows, columns = scaled.sum(2), scaled.sum(1)
    torch.testing.assert_close(columns, columns.mean(1, keepdim=True).expand_as(columns))  # scaled last
    spread = float((rows / rows.mean(1, keepdim=True) - 1).abs().max())
    before = float((kernel.sum(2) / kernel.sum(2).mean(1, keepdim=True) - 1).abs().max())
    assert spread < before / (1 if steps == 1 else 2)
    assert steps < 50 or spread < 1e-6


@pytest.mark.parametrize("cost", ["cv", m3g.PairwiseCost("cosine", weights={(0, 1): 1.0, (1, 2): 0.5})], ids=str)
def test_the_initial_scalings_are_nearer_to_the_solution_than_the_weights(cost):
    problem = m3g.costs.as_cost(cost)(reference.noisy_views(3, 6, 4))
    built = kernels(problem, epsilon=0.5, tol=1e-9)
    exact = m3g.solve(problem, epsilon=0.5, tol=1e-9)

    def error(log_scaling):
        solved = exact.coupling_form.log_scaling
        # Constants may be shifted between views.
        return sum(float((part - part.mean()).abs().sum()) for part in (log_scaling - solved).split([6, 6, 6], 1))

    assert error(balanced_start(problem, built)) < 0.5 * error(built.target.log())
