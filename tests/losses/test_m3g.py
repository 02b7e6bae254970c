"""The matching gap: definition, properties, gradient and interface."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import m3g
import reference
from m3g.costs import as_cost

SHAPES = st.tuples(st.integers(2, 6), st.integers(1, 4), st.integers(2, 6), st.integers(0, 1000))
COSTS = ["cv", "cv-algorithm2", "csd", "sqeuclidean", "cosine", "coulomb"]
EPSILON = {"cv-algorithm2": 2.0, "csd": 2.0, "sqeuclidean": 3.0, "cosine": 1.0, "coulomb": 3.0}


def random_mask(k, n, seed):
    mask = torch.rand(k, n, generator=torch.Generator().manual_seed(seed)) > 0.3
    mask[seed % k] = True
    return mask


@pytest.mark.parametrize("cost", COSTS)
@settings(max_examples=8, deadline=None)
@given(shape=st.tuples(st.integers(2, 4), st.integers(1, 4), st.integers(2, 6), st.integers(0, 1000)))
def test_the_gap_equals_its_definition(cost, shape):
    k, n, d, seed = shape
    views = reference.noisy_views(k, n, d, seed=seed)
    dense = as_cost(cost)(views).dense()[0]
    # Nearly coincident points have large costs. At an epsilon far below them, Algorithm 1 may not converge.
    epsilon = max(EPSILON.get(cost, 0.2), float(dense.max()) / 10)
    gap = m3g.matching_gap(views, epsilon=epsilon, cost=cost, tol=1e-9)
    torch.testing.assert_close(gap, reference.gap(dense, epsilon), atol=1e-7, rtol=0)


@settings(max_examples=40, deadline=None)
@given(shape=SHAPES, masked=st.booleans(), epsilon=st.sampled_from([0.5, 0.05, 0.01]))
def test_the_gap_is_never_negative(shape, masked, epsilon):
    k, n, d, seed = shape
    views = reference.noisy_views(k, n, d, seed=seed, dtype=torch.float32)
    mask = random_mask(k, n, seed) if masked else None
    assert float(m3g.matching_gap(views, epsilon=epsilon, mask=mask)) >= -1e-6


@settings(max_examples=25, deadline=None)
@given(shape=SHAPES, masked=st.booleans())
def test_the_order_of_views_and_of_points_does_not_matter(shape, masked):
    k, n, d, seed = shape
    generator = torch.Generator().manual_seed(seed)
    views = reference.noisy_views(k, n, d, seed=seed)
    mask = random_mask(k, n, seed) if masked else torch.ones(k, n, dtype=torch.bool)
    gap = m3g.matching_gap(views, mask=mask, tol=1e-9)
    by_view, by_point = torch.randperm(k, generator=generator), torch.randperm(n, generator=generator)
    permuted = m3g.matching_gap(views[by_view][:, by_point], mask=mask[by_view][:, by_point], tol=1e-9)
    torch.testing.assert_close(gap, permuted, atol=1e-8, rtol=0)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_gap_vanishes_if_the_true_matching_is_optimal(k):
    """Identical, well separated points: the best coupling is the true one up to exp(-cost / epsilon)."""
    views = torch.eye(6, dtype=torch.float64).expand(k, 6, 6)
    assert float(m3g.matching_gap(views, epsilon=0.01)) < 1e-6
    swapped = views.clone()
    swapped[0, [0, 1]] = swapped[0, [1, 0]]
    assert float(m3g.matching_gap(swapped, epsilon=0.01)) > 0.05


@pytest.mark.parametrize("cost", COSTS)
def test_the_gradient_is_that_of_finite_differences(cost):
    views = reference.noisy_views(3, 4, 3, seed=5).requires_grad_()
    epsilon = EPSILON.get(cost, 0.2)
    assert torch.autograd.gradcheck(
        lambda x: m3g.matching_gap(x, epsilon=epsilon, cost=cost, tol=1e-11), views, atol=1e-5
    )


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    "cost", [*(cost for cost in COSTS if cost != "coulomb"), "csd + product", "csd[:2] + 0.5*product[1:]"]
)
def test_a_missing_point_is_the_mean_of_its_object_without_gradient(cost, normalize):
    views, mask = 1.5 * reference.noisy_views(3, 4, 3, seed=5), random_mask(3, 4, 1)
    mask[:, 0] = torch.tensor([True, False, False])
    points = torch.nn.functional.normalize(views, dim=-1) if normalize else views
    rows = []
    for i in range(4):
        present = points[mask[:, i], i]
        mean = present.mean(0)
        mean = mean / mean.norm() * present.norm(dim=-1).mean()
        rows.append(torch.stack([points[l, i] if mask[l, i] else mean for l in range(3)]))
    imputed = torch.stack(rows, 1)
    options = {"epsilon": EPSILON.get(cost, 0.2), "cost": cost, "tol": 1e-11, "normalize": normalize}
    leaves = [points.clone().requires_grad_(), imputed.requires_grad_()]
    gaps = [m3g.matching_gap(leaves[0], mask=mask, **options), m3g.matching_gap(leaves[1], **options)]
    torch.testing.assert_close(*gaps)
    ours, expected = (torch.autograd.grad(gap, leaf)[0] for gap, leaf in zip(gaps, leaves))
    torch.testing.assert_close(ours[mask], expected[mask])
    assert bool((ours[~mask] == 0).all())


def test_a_missing_view_of_opposite_views_has_a_finite_gradient():
    views = reference.noisy_views(3, 4, 3, seed=5)
    views[1, 0], views[2, 0] = -views[0, 0], float("nan")
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[2, 0] = False
    views.requires_grad_()
    gap = m3g.matching_gap(views, mask=mask)
    gap.backward()
    assert float(gap.detach()) >= 0
    assert bool(views.grad.isfinite().all())


@pytest.mark.parametrize("k", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("normalize", [False, True])
def test_the_gradient_is_correct_for_every_k_and_in_a_batch(k, normalize):
    views = torch.stack([reference.noisy_views(k, 3, 3, seed=s) for s in (0, 1)]).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: m3g.matching_gap(x, epsilon=0.1, tol=1e-11, normalize=normalize), views, atol=1e-5
    )


def test_the_gradient_of_graphs_and_functions_is_correct():
    views = reference.noisy_views(3, 3, 2).requires_grad_()
    chain = m3g.PairwiseCost("sqeuclidean", weights={(0, 1): 1.0, (1, 2): 1.0})
    for cost in (chain, lambda x, y, z: (x - y * z).square().sum(-1)):
        assert torch.autograd.gradcheck(
            lambda v, cost=cost: m3g.matching_gap(v, epsilon=2.0, cost=cost, tol=1e-11), views, atol=1e-5
        )


def test_the_gradient_of_some_views_is_that_of_all():
    views = [view.requires_grad_(l == 1) for l, view in enumerate(reference.noisy_views(3, 5))]
    m3g.matching_gap(views).backward()
    stacked = torch.stack([view.detach() for view in views]).requires_grad_()
    m3g.matching_gap(stacked).backward()
    assert views[0].grad is None
    torch.testing.assert_close(views[1].grad, stacked.grad[1])


def test_gradient_descent_closes_the_gap():
    torch.manual_seed(0)
    points = torch.randn(3, 8, 2, requires_grad=True)
    loss = m3g.M3GLoss(epsilon=0.02)
    optimizer = torch.optim.Adam([points], lr=0.1)
    for _ in range(80):
        optimizer.zero_grad()
        value = loss(points)
        value.backward()
        optimizer.step()
    assert value.item() < 0.02


def test_values_at_missing_points_have_no_effect():
    views = reference.noisy_views(3, 6)
    mask = random_mask(3, 6, 2)
    other = views.clone()
    other[~mask] = float("nan")
    other.requires_grad_()
    gap = m3g.matching_gap(other, mask=mask, tol=1e-10)
    torch.testing.assert_close(gap, m3g.matching_gap(views, mask=mask, tol=1e-10))
    gap.backward()
    assert bool((other.grad[~mask] == 0).all())
    assert bool(other.grad.isfinite().all())
    full = torch.ones(3, 6, dtype=torch.bool)
    torch.testing.assert_close(m3g.matching_gap(views, mask=full), m3g.matching_gap(views))


def test_the_teacher_form_is_the_mean_of_the_mixed_gaps():
    student = reference.noisy_views(3, 5, seed=1).requires_grad_()
    teacher = reference.noisy_views(3, 5, seed=2).requires_grad_()
    mask = random_mask(3, 5, 1)
    loss = m3g.M3GLoss(epsilon=0.05, tol=1e-10)
    value = loss(student, teacher=teacher, mask=mask)
    gaps = []
    for i in range(3):
        mixed = [teacher[l].detach() if l == i else student[l] for l in range(3)]
        gaps.append(m3g.matching_gap(mixed, epsilon=0.05, tol=1e-10, mask=mask))
    torch.testing.assert_close(value, torch.stack(gaps).mean())
    value.backward()
    (expected,) = torch.autograd.grad(torch.stack(gaps).mean(), student)
    torch.testing.assert_close(student.grad, expected)
    assert teacher.grad is None


@pytest.mark.parametrize(
    "views",
    [
        torch.randn(3, 1, 4),  # one point
        torch.ones(3, 5, 4),  # identical points
        torch.eye(4).expand(3, 4, 4),  # orthogonal points, a zero gap
        torch.cat([torch.ones(2, 4, 3), -torch.ones(1, 4, 3)]),  # opposite views: the mean vanishes for k = 2
    ],
    ids=["one point", "identical", "orthogonal", "opposite"],
)
@pytest.mark.parametrize("cost", ["cv", "csd", "cosine"])
def test_degenerate_but_valid_views_have_finite_gradients(views, cost):
    views = views.clone().requires_grad_()
    gap = m3g.matching_gap(views, cost=cost, epsilon=0.2)
    gap.backward()
    assert gap.item() >= -1e-6
    assert bool(views.grad.isfinite().all())


@pytest.mark.parametrize("name", ["m3g", "kl"])
def test_a_scheduled_epsilon_is_geometric(name):
    views = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = m3g.losses.build(name, epsilon=0.02, final_epsilon=0.2)
    for progress, epsilon in ((0.0, 0.02), (0.5, 0.02 * 10**0.5), (1.0, 0.2), (1.5, 0.2)):
        loss.set_progress(progress)
        assert loss.epsilon == pytest.approx(epsilon)
        assert torch.allclose(loss(views), m3g.losses.build(name, epsilon=epsilon)(views))
    constant = m3g.losses.build(name, epsilon=0.02)
    constant.set_progress(1.0)
    assert constant.epsilon == 0.02
    assert not constant.scheduled


def test_a_scheduled_epsilon_must_be_positive():
    with pytest.raises(ValueError, match="final_epsilon must be"):
        m3g.M3GLoss(final_epsilon=0.0)
