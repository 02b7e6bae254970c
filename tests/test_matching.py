"""The best polymatching of unaligned sets."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from torch.nn.functional import normalize

import m3g
from m3g import matching, polymatching
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
def test_two_views_and_a_sharp_epsilon_are_the_assignment(n, seed):
    a, b = np.random.default_rng(seed).standard_normal((2, n, 6))
    matched = m3g.match([a, b], epsilon=0.002)
    assume((matched.probabilities > 0.9).all())  # else another assignment costs nearly as little
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b)]
    costs = ((unit[0][:, None] - unit[1][None]) ** 2).sum(-1)
    assert matched.tuples[:, 1].tolist() == linear_sum_assignment(costs)[1].tolist()


def test_the_exact_solver_gives_the_assignment_itself():
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
    whole = m3g.match(views, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "MOST_TUPLES", 0)
        searched = m3g.match(views, **options)
    assert torch.equal(whole.tuples, searched.tuples)
    assert torch.allclose(whole.probabilities, searched.probabilities, atol=1e-6)


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
    ],
)
def test_wrong_arguments_are_rejected(views, options, message):
    with pytest.raises(ValueError, match=message):
        m3g.match(views, **options)


def hidden_copies(k, n, orphans, *, noise, seed, d=16):
    """Return k shuffled noisy copies of n objects, each with `orphans` additional objects, and the object numbers."""
    rng = np.random.default_rng(seed)
    objects = rng.standard_normal((n + k * orphans, d))
    numbers = [rng.permutation([*range(n), *range(n + l * orphans, n + (l + 1) * orphans)]) for l in range(k)]
    return [objects[number] + noise * rng.standard_normal((len(number), d)) for number in numbers], numbers


def cost_of(views, tuples):
    return polymatching.total_cost(as_cost("cv"), [normalize(torch.as_tensor(v), dim=1) for v in views], tuples)


@settings(deadline=None, max_examples=12)
@given(sizes=st.lists(st.integers(1, 7), min_size=2, max_size=4), seed=st.integers(0, 1000), unmatched=st.booleans())
def test_one_to_one_puts_every_row_into_one_tuple(sizes, seed, unmatched):
    rng = np.random.default_rng(seed)
    views = [rng.standard_normal((n, 5)) for n in sizes]
    matched = m3g.match(views, epsilon=0.1, one_to_one=True, allow_unmatched=unmatched)
    for l, n in enumerate(sizes):
        assert sorted(row for row in matched.tuples[:, l].tolist() if row >= 0) == list(range(n))
    assert unmatched or len(matched.tuples) == max(sizes)
    assert matched.memberships.isnan().equal(matched.tuples == polymatching.NO_ROW)
    assert ((matched.probabilities >= 0) & (matched.probabilities <= 1)).all()


@pytest.mark.parametrize("seed", range(4))
def test_one_to_one_of_two_views_is_the_assignment_of_least_cost(seed):
    a, b = np.random.default_rng(seed).standard_normal((2, 20, 6))
    matched = m3g.match([a, b], epsilon=0.1, cost="sqeuclidean", normalize=False, one_to_one=True)
    costs = ((a[:, None] - b[None]) ** 2).sum(-1)
    assert matched.tuples[:, 1].tolist() == linear_sum_assignment(costs)[1].tolist()


@pytest.mark.parametrize("seed", range(6))
def test_one_to_one_costs_little_more_than_the_best_polymatching(seed):
    views, _ = hidden_copies(3, 4, 0, noise=0.8, seed=seed, d=4)
    matched = m3g.match(views, epsilon=0.02, one_to_one=True)
    orders = list(itertools.permutations(range(4)))
    best = min(cost_of(views, torch.tensor([range(4), b, c]).T) for b in orders for c in orders)
    assert cost_of(views, matched.tuples) <= best + 0.05


def test_one_to_one_is_better_than_assigning_every_view_to_the_first():
    right = []
    for seed in range(5):
        views, numbers = hidden_copies(3, 60, 0, noise=0.8, seed=seed)
        unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in views]
        pairwise = np.stack([np.arange(60), *(linear_sum_assignment(-unit[0] @ u.T)[1] for u in unit[1:])], 1)
        matched = m3g.match(views, one_to_one=True)
        assert cost_of(views, matched.tuples) < cost_of(views, torch.from_numpy(pairwise))
        objects = [np.stack([numbers[l][t[:, l]] for l in range(3)], 1) for t in (matched.tuples.numpy(), pairwise)]
        right.append([(o == np.roll(o, 1, axis=1)).mean() for o in objects])
    ours, theirs = np.mean(right, axis=0)
    assert ours > theirs + 0.05


def test_rows_without_a_partner_are_not_matched():
    views, numbers = hidden_copies(3, 80, 20, noise=0.3, seed=1)
    forced = m3g.match(views, one_to_one=True)
    matched = m3g.match(views, allow_unmatched=True)
    assert len(forced.tuples) == 100
    assert [forced.unused(l) for l in range(3)] == [0, 0, 0]
    named = [
        {numbers[l][row] for l, row in enumerate(rows) if row >= 0} for rows in matched.tuples.tolist()
    ]  # fmt: skip
    assert sum(len(names) > 1 for names in named) <= 1
    assert all(abs(matched.unused(l) - 20) <= 2 for l in range(3))
    whole = (matched.tuples >= 0).all(1)
    assert 78 <= int(whole.sum()) <= 80
    assert (matched.tuples[:100, 0] == torch.arange(100)).all()


def test_an_object_that_the_anchor_lacks_gets_a_tuple():
    rng = np.random.default_rng(0)
    objects = rng.standard_normal((31, 16))
    views = [objects[:30], objects[1:], objects[1:]]
    matched = m3g.match([v + 0.05 * rng.standard_normal(v.shape) for v in views], allow_unmatched=0.5)
    assert [-1, 29, 29] in matched.tuples.tolist()
    assert [0, -1, -1] in matched.tuples.tolist()


def calibration_error(matched, numbers, *, without=()):
    """Expected calibration error of the memberships of rows of objects that are not in `without`."""
    objects = np.stack([numbers[l][matched.tuples[:, l]] for l in range(3)], 1)
    right = np.stack([(np.delete(objects, l, 1) == objects[:, [l]]).any(1) for l in range(3)], 1)
    tested = ~np.isin(objects, without)
    right, sure = right[tested], matched.memberships.numpy()[tested]
    part = np.minimum((5 * sure).astype(int), 4)
    return sum(abs(right[part == b].mean() - sure[part == b].mean()) * (part == b).mean() for b in np.unique(part))


@pytest.mark.parametrize(("noise", "orphans"), [(0.3, 0), (0.3, 20), (0.6, 10)])
def test_memberships_are_calibrated(noise, orphans):
    errors = []
    for seed in range(3):
        views, numbers = hidden_copies(3, 60, orphans, noise=noise, seed=seed)
        errors.append(calibration_error(m3g.match(views, one_to_one=True), numbers))
    assert np.mean(errors) < 0.08


def test_known_objects_calibrate_the_memberships():
    """In groups of similar objects, wrong pairs are more similar than the normal model of the scores allows."""
    errors = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        objects = 2 * rng.standard_normal((10, 16)).repeat(12, 0) + rng.standard_normal((120, 16))
        numbers = [rng.permutation(120) for _ in range(3)]
        views = [objects[order] + 0.9 * rng.standard_normal((120, 16)) for order in numbers]
        sample = rng.choice(120, 40, replace=False)
        known = np.stack([order.argsort()[sample] for order in numbers], 1)
        raw, calibrated = m3g.match(views, one_to_one=True), m3g.match(views, one_to_one=True, known=known)
        assert torch.equal(raw.tuples, calibrated.tuples)
        errors.append([calibration_error(one, numbers, without=sample) for one in (raw, calibrated)])
    before, after = np.mean(errors, 0)
    assert before > 0.15
    assert after < 0.08


def test_known_objects_set_the_limit_of_unmatched_rows():
    views, numbers = hidden_copies(3, 60, 20, noise=0.6, seed=0)
    known = np.stack([numbers[l].argsort()[:30] for l in range(3)], 1)
    strangers = known.copy()
    strangers[:, 1:] = -1  # rows of view 0 without any partner
    few, many = (m3g.match(views, allow_unmatched=True, known=rows) for rows in (strangers, known))
    assert few.unused(0) > many.unused(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"known": [[0, 1]]}, "known must be None unless one_to_one or allow_unmatched is set"),
        ({"one_to_one": True, "known": [[0, 1, 2]]}, r"known must be whole numbers of shape \(r, 2\)"),
        ({"one_to_one": True, "known": [[0, 3]]}, "known must contain row numbers of view 1 from 0 to 2, or -1"),
        ({"one_to_one": True, "known": [[0, 1], [0, 2]]}, "known must contain each row of view 0 at most once"),
        ({"one_to_one": True, "alternatives": 2}, "alternatives must be 1 for a one-to-one matching, got 2"),
        ({"allow_unmatched": 1.5}, "allow_unmatched must be a bool or a probability between 0 and 1, got 1.5"),
        ({"allow_unmatched": "yes"}, "allow_unmatched must be a bool or a probability"),
    ],
)
def test_invalid_one_to_one_arguments_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        m3g.match([np.random.default_rng(0).standard_normal((3, 2))] * 2, **options)
