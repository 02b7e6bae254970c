"""The best polymatching of unaligned sets."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from torch.nn.functional import normalize

import m3g
from m3g import matching
from m3g.costs import as_cost
from m3g.losses.convergence import ConvergenceWarning


def shuffled_copies(k, n, d, *, noise, seed, dtype=torch.float64):
    """Return k noisy copies of n objects, each in a different order, and the orders."""
    random = torch.Generator().manual_seed(seed)
    objects = normalize(torch.randn(n, d, generator=random, dtype=dtype), dim=1)
    orders = [torch.randperm(n, generator=random) for _ in range(k)]
    return [objects[o] + noise * torch.randn(n, d, generator=random, dtype=dtype) for o in orders], orders


@settings(deadline=None, max_examples=12)
@given(
    k=st.integers(2, 5),
    n=st.integers(1, 9),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    cost=st.sampled_from(["cv", "csd", "sqeuclidean", "cosine"]),
)
def test_permuted_noisy_copies_are_found(k, n, seed, dtype, cost):
    views, orders = shuffled_copies(k, n, 24, noise=0.02, seed=seed, dtype=dtype)
    matched = m3g.match(views, cost=cost, epsilon=0.01 if cost in ("cv", "csd") else 0.05)
    objects = torch.stack([order[matched.tuples[:, l]] for l, order in enumerate(orders)], dim=1)
    assert (objects == objects[:, :1]).all()
    assert matched.tuples[:, 0].tolist() == list(range(n))
    assert (matched.probabilities > 0.9).all()
    assert (matched.probabilities <= 1).all()
    assert [matched.unused(l) for l in range(k)] == [0] * k


@settings(deadline=None, max_examples=15)
@given(n=st.integers(2, 12), seed=st.integers(0, 1000))
def test_two_views_at_a_small_epsilon_have_the_optimal_assignment(n, seed):
    a, b = np.random.default_rng(seed).standard_normal((2, n, 6))
    matched = m3g.match([a, b], epsilon=0.002)
    assume((matched.probabilities > 0.9).all())  # otherwise, another assignment has nearly the same cost
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b)]
    costs = ((unit[0][:, None] - unit[1][None]) ** 2).sum(-1)
    assert matched.tuples[:, 1].tolist() == linear_sum_assignment(costs)[1].tolist()


def test_the_exact_solver_returns_the_optimal_assignment():
    a, b = np.random.default_rng(3).standard_normal((2, 30, 6))
    matched = m3g.match([a, b], epsilon=0.0, solver="linear-program", cost="sqeuclidean", normalize=False)
    costs = ((a[:, None] - b[None]) ** 2).sum(-1)
    assert matched.tuples[:, 1].tolist() == linear_sum_assignment(costs)[1].tolist()
    assert matched.probabilities.tolist() == [1.0] * 30


@settings(deadline=None, max_examples=12)
@given(sizes=st.lists(st.integers(1, 6), min_size=2, max_size=4), seed=st.integers(0, 1000))
def test_sizes_may_differ_and_probabilities_are_conditional(sizes, seed):
    random = torch.Generator().manual_seed(seed)
    views = [torch.randn(n, 3, generator=random, dtype=torch.float64) for n in sizes]
    largest = max(sizes)
    every = int(np.prod(sizes)) // largest
    matched = m3g.match(views, epsilon=0.3, alternatives=every, tol=1e-8)
    assert matched.anchor == sizes.index(largest)
    assert len(matched.tuples) == largest * every
    assert len({tuple(t) for t in matched.tuples.tolist()}) == largest * every
    sums = matched.probabilities.view(largest, every).sum(1)
    assert torch.allclose(sums, torch.ones_like(sums))
    assert (matched.probabilities.view(largest, every).diff(dim=1) <= 0).all()
    # The mass of every point of view l is 1 / n_l, as the marginals require.
    mass = matched.probabilities / largest
    for l, n in enumerate(sizes):
        per_point = torch.zeros(n, dtype=mass.dtype).index_add_(0, matched.tuples[:, l], mass)
        assert torch.allclose(per_point, torch.full_like(per_point, 1 / n), atol=1e-6)


@settings(deadline=None, max_examples=12)
@given(k=st.integers(2, 4), n=st.integers(2, 8), seed=st.integers(0, 1000), cost=st.sampled_from(["cv", "sqeuclidean"]))
def test_local_search_finds_the_result_of_exhaustive_search(k, n, seed, cost):
    views, _ = shuffled_copies(k, n, 8, noise=0.1, seed=seed)
    options = {"cost": cost, "epsilon": 0.05, "tol": 1e-8}
    exhaustive = m3g.match(views, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "MAX_TUPLES", 0)
        searched = m3g.match(views, **options)
    assert torch.equal(exhaustive.tuples, searched.tuples)
    assert torch.allclose(exhaustive.probabilities, searched.probabilities, atol=1e-6)


def test_many_views_are_matched_by_sampling():
    views, orders = shuffled_copies(8, 32, 24, noise=0.05, seed=0)
    matched = m3g.match(views, epsilon=0.05, solver=m3g.Sampled(seed=0))
    objects = torch.stack([order[matched.tuples[:, l]] for l, order in enumerate(orders)], dim=1)
    assert (objects == objects[:, :1]).all()


def test_a_temperature_is_an_epsilon_in_units_of_the_cost():
    views = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0))
    for cost in ("cv", "product"):
        epsilon = 0.1 * as_cost(cost).slope(3)
        matched, expected = m3g.match(views, temperature=0.1, cost=cost), m3g.match(views, epsilon=epsilon, cost=cost)
        assert torch.equal(matched.tuples, expected.tuples)
        torch.testing.assert_close(matched.probabilities, expected.probabilities)
    with pytest.raises(ValueError, match="temperature must be None if epsilon is given"):
        m3g.match(views, temperature=0.1, epsilon=0.1)


def test_a_solve_that_stops_early_warns():
    views, _ = shuffled_copies(3, 12, 6, noise=0.5, seed=0)
    with pytest.warns(ConvergenceWarning, match="the probabilities are approximate"):
        m3g.match(views, epsilon=0.01, solver=m3g.Sinkhorn(max_steps=1), tol=1e-9)


def test_the_warning_of_an_untrusted_solve_states_the_reason():
    views = list(torch.randn(6, 24, 8, generator=torch.Generator().manual_seed(0)))
    message = "estimated error of a sampled solution is too large"
    with pytest.warns(m3g.SamplingWarning), pytest.warns(ConvergenceWarning, match=message):
        m3g.match(views, epsilon=0.05, solver=m3g.Sampled(rank=8, seed=0))


@pytest.mark.parametrize(
    ("views", "options", "message"),
    [
        ([np.zeros((3, 2))], {}, "views must have k >= 2 views, got k = 1"),
        ([np.ones((3, 2)), np.ones((3, 4))], {}, "with the same d"),
        ([np.ones((3, 2)), np.zeros((2, 2))], {}, "view 1 must be non-zero vectors .* got a zero vector in row 0"),
        ([np.ones((3, 2)), np.full((2, 2), np.nan)], {}, "view 1 must be finite"),
        ([np.ones((2, 3, 2))] * 2, {}, r"views must be k tensors \(n, d\)"),
        ([np.ones((3, 2))] * 2, {"alternatives": 0}, "alternatives must be a whole number"),
        ([np.ones((3, 2))] * 2, {"alternatives": 4}, "alternatives must be at most 3, the number of tuples per point"),
        ([np.ones((3, 2))] * 2, {"epsilon": 0.0}, "epsilon must be a positive"),
        ([np.ones((3, 2))] * 2, {"cost": "nonsense"}, "cost must be one of"),
        ([np.ones((3, 2))] * 2, {"solver": {}}, r"solver must be one of .* got \{\}"),
        ("x", {}, r"views must be a tensor .* got str 'x'\.$"),
        ([np.ones(3)] * 2, {}, r"views must be tensors \(..., n, d\), got shape \(3,\) in view 0"),
        (
            [np.ones((3, 2)), np.ones((3, 2)) * 1j],
            {},
            r"views must be arrays of numbers \(n, d\), got ndarray in view 1",
        ),
        ([np.ones((3, 2))] * 2, {"one_to_one": "yes"}, "one_to_one must be True or False, got 'yes'"),
        ([np.ones((3, 2))] * 2, {"known": [[0, 3]], "one_to_one": True}, "of view 1 from 0 to 2, or -1, got 3"),
        (
            [np.ones((3, 2))] * 2,
            {"known": [[-1, -1]], "one_to_one": True},
            "known must contain at least one row number",
        ),
        ([np.ones((3, 2))] * 2, {"known": {}, "one_to_one": True}, "known must be an array of whole numbers"),
    ],
)
def test_wrong_arguments_are_rejected(views, options, message):
    with pytest.raises(ValueError, match=message):
        m3g.match(views, **options)


def test_known_objects_may_be_a_data_frame():
    views, _ = shuffled_copies(2, 12, 6, noise=0.5, seed=0)
    rows = [[0, 1], [2, 3], [4, -1]]
    matchings = [m3g.match(views, one_to_one=True, known=known) for known in (rows, pd.DataFrame(rows))]
    assert matchings[0].memberships.equal(matchings[1].memberships)
