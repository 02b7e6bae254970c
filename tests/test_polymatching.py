"""One-to-one polymatchings and the probabilities of memberships."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from torch.nn.functional import normalize

import m3g
from m3g import polymatching
from m3g.costs import as_cost


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
def test_one_to_one_of_two_views_is_the_assignment_of_minimum_cost(seed):
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
    correct = []
    for seed in range(5):
        views, numbers = hidden_copies(3, 60, 0, noise=0.8, seed=seed)
        unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in views]
        pairwise = np.stack([np.arange(60), *(linear_sum_assignment(-unit[0] @ u.T)[1] for u in unit[1:])], 1)
        matched = m3g.match(views, one_to_one=True)
        assert cost_of(views, matched.tuples) < cost_of(views, torch.from_numpy(pairwise))
        objects = [np.stack([numbers[l][t[:, l]] for l in range(3)], 1) for t in (matched.tuples.numpy(), pairwise)]
        correct.append([(o == np.roll(o, 1, axis=1)).mean() for o in objects])
    one_to_one, to_first = np.mean(correct, axis=0)
    assert one_to_one > to_first + 0.05


def test_rows_without_a_partner_are_not_matched():
    views, numbers = hidden_copies(3, 80, 20, noise=0.3, seed=1)
    forced = m3g.match(views, one_to_one=True)
    matched = m3g.match(views, allow_unmatched=True)
    assert len(forced.tuples) == 100
    assert [forced.unused(l) for l in range(3)] == [0, 0, 0]
    objects = [{numbers[l][row] for l, row in enumerate(rows) if row >= 0} for rows in matched.tuples.tolist()]
    assert sum(len(numbers_of_tuple) > 1 for numbers_of_tuple in objects) <= 1
    assert all(abs(matched.unused(l) - 20) <= 2 for l in range(3))
    complete = (matched.tuples >= 0).all(1)
    assert 78 <= int(complete.sum()) <= 80
    assert (matched.tuples[:100, 0] == torch.arange(100)).all()


def test_an_object_missing_from_the_anchor_view_has_a_tuple():
    rng = np.random.default_rng(0)
    objects = rng.standard_normal((31, 16))
    views = [objects[:30], objects[1:], objects[1:]]
    matched = m3g.match([v + 0.05 * rng.standard_normal(v.shape) for v in views], allow_unmatched=0.5)
    assert [-1, 29, 29] in matched.tuples.tolist()
    assert [0, -1, -1] in matched.tuples.tolist()


def calibration_error(matched, numbers, *, without=()):
    """Expected calibration error of the memberships of rows of objects that are not in `without`."""
    objects = np.stack([numbers[l][matched.tuples[:, l]] for l in range(3)], 1)
    correct = np.stack([(np.delete(objects, l, 1) == objects[:, [l]]).any(1) for l in range(3)], 1)
    tested = ~np.isin(objects, without)
    correct, probabilities = correct[tested], matched.memberships.numpy()[tested]
    bins = np.minimum((5 * probabilities).astype(int), 4)
    parts = [bins == b for b in np.unique(bins)]
    return sum(abs(correct[part].mean() - probabilities[part].mean()) * part.mean() for part in parts)


@pytest.mark.parametrize(("noise", "orphans"), [(0.3, 0), (0.3, 20), (0.6, 10)])
def test_memberships_are_calibrated(noise, orphans):
    errors = []
    for seed in range(3):
        views, numbers = hidden_copies(3, 60, orphans, noise=noise, seed=seed)
        errors.append(calibration_error(m3g.match(views, one_to_one=True), numbers))
    assert np.mean(errors) < 0.08


def test_known_objects_calibrate_the_memberships():
    """In groups of similar objects, wrong pairs are more similar than a normal model of the scores predicts."""
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
    unpaired = known.copy()
    unpaired[:, 1:] = -1  # rows of view 0 without any partner
    few, many = (m3g.match(views, allow_unmatched=True, known=rows) for rows in (unpaired, known))
    assert few.unused(0) > many.unused(0)


def test_a_steep_calibration_does_not_overflow():
    """The least slope of the calibration makes the uncalibrated threshold of a low limit nearly 0."""
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(100, 8, generator=generator) for _ in range(2)]  # low probabilities, but all known as correct
    raw = m3g.match(views, one_to_one=True)
    matched = m3g.match(views, allow_unmatched=1e-4, known=raw.tuples)
    assert torch.equal(matched.tuples, raw.tuples)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"known": [[0, 1]]}, "known must be None unless one_to_one or allow_unmatched is set"),
        (
            {"one_to_one": True, "known": [[0, 1, 2]]},
            r"known must be an array of whole numbers of shape \(r, 2\), got torch.int64 of shape \(1, 3\)",
        ),
        ({"one_to_one": True, "known": [[0, 3]]}, "known must contain row numbers of view 1 from 0 to 2, or -1"),
        ({"one_to_one": True, "known": [[0, 1], [0, 2]]}, "known must contain each row of view 0 at most once"),
        ({"one_to_one": True, "alternatives": 2}, "alternatives must be 1 for a one-to-one matching, got 2"),
        ({"allow_unmatched": 1.5}, "allow_unmatched must be True, False or a probability between 0 and 1, got 1.5"),
        ({"allow_unmatched": "yes"}, "allow_unmatched must be True, False or a probability"),
    ],
)
def test_invalid_one_to_one_arguments_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        m3g.match([np.random.default_rng(0).standard_normal((3, 2))] * 2, **options)
