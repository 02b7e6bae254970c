"""The matching gap: its definition, its properties, its gradient, and the ways it may be called."""

import subprocess
import sys
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import m3g
import reference
from m3g.costs import apply_cost
from m3g.losses.m3g import ConvergenceWarning

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
def test_the_gap_is_its_definition(cost, shape):
    k, n, d, seed = shape
    views = reference.noisy_views(k, n, d, seed=seed)
    dense = apply_cost(cost, views).dense()[0]
    # Points that nearly meet repel each other without bound; below this the literal algorithm may never end.
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
    moved = m3g.matching_gap(views[by_view][:, by_point], mask=mask[by_view][:, by_point], tol=1e-9)
    torch.testing.assert_close(gap, moved, atol=1e-8, rtol=0)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_gap_vanishes_where_the_truth_is_optimal(k):
    """Identical, well separated points: the best coupling is the true one up to exp(-cost / epsilon)."""
    views = torch.eye(6, dtype=torch.float64).expand(k, 6, 6)
    assert float(m3g.matching_gap(views, epsilon=0.01)) < 1e-6
    swapped = views.clone()
    swapped[0, [0, 1]] = swapped[0, [1, 0]]
    assert float(m3g.matching_gap(swapped, epsilon=0.01)) > 0.05


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("cost", COSTS)
def test_the_gradient_is_that_of_finite_differences(cost, masked):
    views = reference.noisy_views(3, 4, 3, seed=5).requires_grad_()
    mask = random_mask(3, 4, 1) if masked else None
    epsilon = EPSILON.get(cost, 0.2)
    assert torch.autograd.gradcheck(
        lambda x: m3g.matching_gap(x, epsilon=epsilon, cost=cost, tol=1e-11, mask=mask), views, atol=1e-5
    )


@pytest.mark.parametrize("k", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("normalize", [False, True])
def test_the_gradient_for_every_k_and_in_a_batch(k, normalize):
    views = torch.stack([reference.noisy_views(k, 3, 3, seed=s) for s in (0, 1)]).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: m3g.matching_gap(x, epsilon=0.1, tol=1e-11, normalize=normalize), views, atol=1e-5
    )


def test_the_gradient_of_graphs_and_functions():
    views = reference.noisy_views(3, 3, 2).requires_grad_()
    chain = m3g.PairwiseCost("sqeuclidean", weights={(0, 1): 1.0, (1, 2): 1.0})
    for cost in (chain, lambda x, y, z: (x - y * z).square().sum(-1)):
        assert torch.autograd.gradcheck(
            lambda v, cost=cost: m3g.matching_gap(v, epsilon=2.0, cost=cost, tol=1e-11), views, atol=1e-5
        )


def test_gradient_of_some_views_only():
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


def test_absent_points_change_nothing():
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


def test_student_and_teacher_is_the_mean_of_the_mixed_gaps():
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
def test_degenerate_but_legal(views, cost):
    views = views.clone().requires_grad_()
    gap = m3g.matching_gap(views, cost=cost, epsilon=0.2)
    gap.backward()
    assert gap.item() >= -1e-6
    assert bool(views.grad.isfinite().all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_types_and_autocast(dtype):
    views = reference.noisy_views(3, 64, 32, dtype=torch.float32)
    expected = m3g.matching_gap(views)
    short = views.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        gap = m3g.M3GLoss(epsilon=0.05)(short)
    assert gap.dtype == torch.float32
    gap.backward()
    assert short.grad.dtype == dtype
    torch.testing.assert_close(gap, expected, rtol=0.01, atol=0)


def test_the_user_s_matrix_precision_is_neither_used_nor_changed():
    views = reference.noisy_views(3, 64, 64, dtype=torch.float32)
    expected = m3g.matching_gap(views)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        from m3g.solvers.shared.precision import full_precision

        with full_precision(torch.device("cpu")):
            assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"
        torch.testing.assert_close(m3g.matching_gap(views), expected, atol=1e-6, rtol=0)
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    finally:
        torch.set_float32_matmul_precision(before)


def test_inside_compiled_code():
    layer = torch.nn.Linear(8, 4).double()
    loss = m3g.M3GLoss(epsilon=0.1, tol=1e-9)
    views = torch.randn(3, 6, 8, dtype=torch.float64)

    def step(x):
        return loss(layer(x)) * 2

    plain = step(views)
    plain.backward()
    expected = layer.weight.grad.clone()
    layer.weight.grad = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, while it traces
        compiled = torch.compile(step, backend="eager")
        value = compiled(views)
        value.backward()
    torch.testing.assert_close(value, plain)
    torch.testing.assert_close(layer.weight.grad, expected)


def test_without_grad_and_in_inference_mode():
    views = reference.noisy_views(3, 5)
    with torch.no_grad():
        plain = m3g.matching_gap(views.requires_grad_())
    assert not plain.requires_grad
    with torch.inference_mode():
        torch.testing.assert_close(m3g.matching_gap(views.clone()), plain)


def test_exact_gap_at_epsilon_zero():
    views = reference.noisy_views(2, 6, noise=2.0)
    gap = m3g.matching_gap(views, epsilon=0, solver="linear-program")
    near = m3g.matching_gap(views, epsilon=0.002, tol=1e-6)
    assert float(gap) == pytest.approx(float(near), abs=0.01)


def test_a_solve_that_stops_early_warns_and_keeps_an_upper_bound():
    views = reference.noisy_views(3, 20, dtype=torch.float64)
    true = m3g.matching_gap(views, epsilon=0.01, tol=1e-9)
    with pytest.warns(ConvergenceWarning, match="stopped before its marginals were within tol=1e-09"):
        early = m3g.matching_gap(views, epsilon=0.01, tol=1e-9, solver=m3g.Factored(max_steps=2))
    assert float(early) >= float(true) - 1e-9
    many = reference.noisy_views(5, 20, dtype=torch.float64)  # whose tuples are not all listed
    with pytest.warns(ConvergenceWarning, match="the loss may be off, its gradient is approximate"):
        # An estimate bounds nothing.
        m3g.matching_gap(many, epsilon=0.1, tol=1e-9, solver=m3g.Sampled(max_steps=2, seed=0))


def test_a_loss_can_be_printed_and_tells_how_the_last_solve_went():
    loss = m3g.M3GLoss(epsilon=0.1)
    assert "epsilon=0.1" in repr(loss)
    loss(reference.noisy_views(3, 5))
    assert loss.last.num_steps >= 1
    assert loss.last.solver == "factored"


NAN = torch.randn(3, 4, 5)
NAN[1, 2, 0] = torch.nan
INF = torch.randn(3, 4, 5)
INF[2, 0, 0] = torch.inf
ZERO = torch.randn(3, 4, 5)
ZERO[0, 3] = 0


@pytest.mark.parametrize(
    ("views", "options", "message"),
    [
        (torch.randn(1, 4, 5), {}, "views must have k >= 2 views, got k = 1"),
        ([torch.randn(4, 5)], {}, "views must have k >= 2 views, got k = 1"),
        (torch.randn(4, 5), {}, r"got a tensor of shape \(4, 5\)"),
        ([torch.randn(4, 5), torch.randn(3, 5)], {}, r"views must be views of the same n points, got n = \[4, 3\]"),
        ([torch.randn(4, 5), torch.randn(4, 6)], {}, "with one d and one batch shape"),
        (torch.randn(3, 0, 5), {}, "views must have at least one point per view"),
        (torch.ones(3, 4, 5, dtype=torch.int64), {}, "views must be floating point tensors, got torch.int64"),
        ("abc", {}, "views must be a tensor"),
        (NAN, {}, "got NaN in view 1, point 2"),
        (NAN, {"normalize": False}, "got NaN in view 1, point 2"),
        (INF, {}, "got an infinite value in view 2, point 0"),
        (INF, {"cost": "csd"}, "got an infinite value in view 2, point 0"),
        (ZERO, {}, "got a zero vector, which normalize=True cannot scale to unit length, in view 0, point 3"),
        (torch.randn(3, 4, 5), {"epsilon": 0.0}, "epsilon must be a positive finite number, got 0.0"),
        (torch.randn(3, 4, 5), {"epsilon": float("nan")}, "epsilon must be a positive finite number, got nan"),
        (torch.randn(3, 4, 5), {"tol": -1.0}, "tol must be a positive finite number, got -1.0"),
        (
            torch.randn(3, 4, 5),
            {"mask": torch.ones(4, 3, dtype=torch.bool)},
            r"mask must be a bool tensor of shape \(3, 4\)",
        ),
        (torch.randn(3, 4, 5), {"mask": torch.ones(3, 4)}, "mask must be a bool tensor of shape .* got torch.float32"),
        (torch.randn(3, 4, 5), {"mask": torch.zeros(3, 4, dtype=torch.bool)}, "got point 0 with none"),
        (torch.randn(3, 4, 5), {"cost": "x"}, "cost must be one of"),
        (torch.randn(3, 4, 5), {"solver": "x"}, "solver must be one of"),
        (torch.randn(8, 100, 5), {"cost": "csd", "solver": "sinkhorn"}, "use solver='sampled'"),
    ],
)
def test_wrong_arguments_are_named(views, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        m3g.matching_gap(views, **options)
    assert "\n" not in str(caught.value)


def test_a_teacher_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="teacher must have the student's shape"):
        m3g.M3GLoss()(torch.randn(3, 4, 5), teacher=torch.randn(3, 5, 5))


def test_importing_the_package_loads_nothing_heavy():
    heavy = ["lightning", "transformers", "kornia", "sklearn", "pandas", "matplotlib", "torch._dynamo", "scipy"]
    code = f"import m3g, sys; print([name for name in {heavy} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
