"""Every cost against its formula, tuple by tuple."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import m3g
import reference
from m3g.costs import as_cost

SHAPES = st.tuples(st.integers(2, 4), st.integers(1, 4), st.integers(1, 5), st.integers(0, 100))


def pairwise(ground):
    def cost(*z):
        return sum(ground(z[l], z[m]) for l in range(len(z)) for m in range(l + 1, len(z)))

    return cost


LITERAL = {
    "cv": reference.circular_variance,
    "cv-algorithm2": reference.algorithm_2,
    "csd": reference.circular_std,
    "product": reference.multilinear_product,
    "sqeuclidean": pairwise(lambda x, y: (x - y).square().sum()),
    "cosine": pairwise(lambda x, y: 1 - (x @ y) / (x.norm() * y.norm())),
    "coulomb": pairwise(lambda x, y: 1 / (x - y).norm().clamp(min=1e-3)),
}


@pytest.mark.parametrize("name", LITERAL)
@settings(max_examples=15, deadline=None)
@given(shape=SHAPES)
def test_dense_tensor_is_the_formula(name, shape):
    k, n, d, seed = shape
    views = reference.noisy_views(k, n, d, seed=seed)
    torch.testing.assert_close(as_cost(name)(views).dense()[0], reference.cost_tensor(LITERAL[name], views))


@pytest.mark.parametrize("name", LITERAL)
def test_matched_is_the_mean_of_the_diagonal(name):
    views = reference.noisy_views(3, 5, 4)
    problem = as_cost(name)(views)
    diagonal = problem.dense()[0][(torch.arange(5),) * 3]
    torch.testing.assert_close(problem.matched()[0], diagonal.mean())


def test_a_function_of_k_tensors_is_a_cost():
    views = reference.noisy_views(3, 4, 5)
    problem = as_cost(lambda x, y, z: (x * y * z).sum(-1))(views)
    expected = torch.einsum("id,jd,kd->ijk", *views)
    torch.testing.assert_close(problem.dense()[0], expected)


def test_circular_variance_of_vectors_off_the_sphere_is_the_definition():
    views = 3 * torch.randn(3, 4, 5, dtype=torch.float64)
    expected = reference.cost_tensor(reference.circular_variance, views)
    torch.testing.assert_close(m3g.CircularVariance()(views).dense()[0], expected)


@pytest.mark.parametrize("sizes", [(5, 5, 5), (4, 6)], ids=str)
def test_known_unit_vectors_give_the_same_costs_and_potentials(sizes):
    views = [torch.nn.functional.normalize(torch.randn(2, n, 3, dtype=torch.float64), dim=-1) for n in sizes]
    cost = m3g.CircularVariance(scale="algorithm2")
    plain, known = cost(views), cost(views, unit=True)
    assert known.log_kernels(0.1, torch.float64).shift is None
    assert torch.allclose(known.dense(), plain.dense())
    first, second = (m3g.solve(problem, epsilon=0.1, tol=1e-8) for problem in (plain, known))
    assert torch.allclose(first.value, second.value)
    for one, other in zip(first.potentials, second.potentials):
        assert torch.allclose(one, other)


def test_views_may_have_different_sizes():
    views = [torch.randn(n, 3, dtype=torch.float64) for n in (2, 4, 3)]
    problem = m3g.CircularVariance()(views)
    torch.testing.assert_close(problem.dense()[0], reference.cost_tensor(reference.circular_variance, views))


def test_weights_define_the_graph():
    views = reference.noisy_views(3, 3, 4)
    cost = m3g.PairwiseCost("sqeuclidean", weights={(0, 1): 2.0, (1, 2): 0.5, (0, 2): 0.0})
    expected = reference.cost_tensor(lambda x, y, z: 2 * (x - y).square().sum() + 0.5 * (y - z).square().sum(), views)
    torch.testing.assert_close(cost(views).dense()[0], expected)


@pytest.mark.parametrize(
    ("cost", "neutral"),
    [
        (m3g.PairwiseCost("sqeuclidean", neutral=2.0), 2.0),
        (m3g.PairwiseCost("coulomb"), 0.5**0.5),
        (m3g.PairwiseCost(lambda x, y: x @ y.mT), 0.0),
    ],
)
def test_a_missing_point_of_a_pairwise_cost_has_its_neutral_value(cost, neutral):
    views = reference.noisy_views(2, 3, 4)
    mask = torch.tensor([[True, False, True], [True, True, True]])
    dense = cost(views, mask=mask).dense()[0]
    torch.testing.assert_close(dense[1], torch.full((3,), neutral, dtype=torch.float64))


def test_a_linear_pairwise_cost_uses_the_imputed_point():
    views = reference.noisy_views(2, 3, 4)
    mask = torch.tensor([[True, False, True], [True, True, True]])
    for cost in (m3g.PairwiseCost("sqeuclidean"), m3g.PairwiseCost("cosine")):
        torch.testing.assert_close(cost(views, mask=mask).dense(), cost(views).dense())


def test_every_pair_may_have_its_own_ground_cost():
    views = reference.noisy_views(4, 3, 5)

    def taxicab(x, y):
        return (x.unsqueeze(-2) - y.unsqueeze(-3)).abs().sum(-1)

    cost = m3g.PairwiseCost(
        {(0, 1): taxicab, (2, 3): "coulomb", (0, 3): "cosine", (1, 2): "sqeuclidean"},
        weights={(0, 1): 2.0, (1, 2): 0.5, (2, 3): 1.0, (0, 3): 0.0},
    )

    def literal(w, x, y, z):
        return 2 * (w - x).abs().sum() + 0.5 * (x - y).square().sum() + 1 / (y - z).norm().clamp(min=1e-3)

    problem = cost(views)
    assert problem.edges == [(0, 1), (1, 2), (2, 3)]
    torch.testing.assert_close(problem.dense()[0], reference.cost_tensor(literal, views))
    assert m3g.PairwiseCost({(0, 2): "cosine"})(views).edges == [(0, 2)]
    gap = m3g.matching_gap(views, cost=cost, epsilon=2.0, tol=1e-9)
    torch.testing.assert_close(gap, reference.gap(problem.dense()[0], 2.0), atol=1e-7, rtol=0)


@settings(max_examples=20, deadline=None)
@given(
    shape=SHAPES,
    offset=st.sampled_from([0.0, 1.0, 1000.0]),
    distance=st.sampled_from([2e-3, 0.2]),
    ground=st.sampled_from(["sqeuclidean", "coulomb"]),
)
def test_close_points_keep_their_distance_in_float32(shape, offset, distance, ground):
    """|x|² + |y|² - 2⟨x, y⟩ loses all digits where the points are far from the origin or close to each other."""
    _, n, d, seed = shape
    generator = torch.Generator().manual_seed(seed)
    base = offset + torch.randn(1, n, d, generator=generator)
    views = base + distance * torch.randn(2, n, d, generator=generator)
    found = m3g.PairwiseCost(ground)(views).dense()[0]
    exact = reference.cost_tensor(LITERAL[ground], views.double())
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-6 if ground == "sqeuclidean" else 1e-4)


def test_coulomb_is_accurate_for_nearly_coincident_unit_vectors():
    angle = 2 * torch.asin(torch.tensor(1e-3, dtype=torch.float64))
    views = torch.stack([torch.tensor([[1.0, 0.0]]).double(), torch.stack([angle.cos(), angle.sin()])[None]]).float()
    assert float(m3g.PairwiseCost("coulomb")(views).dense()) == pytest.approx(500.0, rel=1e-4)


def test_the_error_of_a_failing_function_names_the_pair_and_the_shapes():
    views = [torch.rand(2, 3, 4), torch.rand(2, 5, 4), torch.rand(2, 6, 4)]
    grounds = {(0, 1): "cosine", (1, 2): lambda x, y: (x - y).norm(dim=-1)}
    with pytest.raises(
        ValueError,
        match=r"ground must be a function that returns costs \(2, 5, 6\) for points \(2, 5, 4\) of view 1 and "
        r"\(2, 6, 4\) of view 2, got RuntimeError: The size of tensor",
    ):
        m3g.PairwiseCost(grounds)(views)
    with pytest.raises(ValueError, match=r"from \(2, 3, 1, 1, 4\), \(2, 1, 5, 1, 4\), \(2, 1, 1, 6, 4\) to .*, got "):
        as_cost(lambda x, y, z: x @ y)(views).dense()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: m3g.PairwiseCost({(1, 0): "cosine"}), r"ground must have keys \(l, m\) with 0 <= l < m, got \(1, 0\)"),
        (lambda: m3g.PairwiseCost({(0, 1): "x"}), r"ground of \(0, 1\) must be one of 'cosine', 'coulomb'"),
        (lambda: m3g.PairwiseCost({(0, 5): "cosine"})(torch.rand(3, 2, 2)), "ground must name views from 0 to 2"),
        (lambda: m3g.PairwiseCost({})(torch.rand(3, 2, 2)), "ground must have at least one pair"),
        (
            lambda: m3g.PairwiseCost({(0, 1): "cosine"}, weights={(0, 2): 1.0}),
            r"weights must have only keys of ground, got \(0, 2\)",
        ),
        (lambda: m3g.CircularVariance(scale="x"), "scale must be one of 'algorithm2', 'definition', got 'x'"),
        (lambda: m3g.PairwiseCost("x"), "ground must be one of 'cosine', 'coulomb', 'sqeuclidean', got 'x'"),
        (lambda: m3g.PairwiseCost(weights={(1, 0): 1.0}), r"weights must have keys \(l, m\) with 0 <= l < m"),
        (lambda: m3g.PairwiseCost(weights={(0, 1): -1.0}), "weights must be non-negative finite numbers"),
        (lambda: m3g.PairwiseCost(weights={(0, 5): 1.0})(torch.rand(3, 2, 2)), "weights must name views from 0 to 2"),
        (
            lambda: m3g.PairwiseCost(weights={(0, 1): 0.0})(torch.rand(3, 2, 2)),
            "weights must have at least one pair with positive weight",
        ),
        (lambda: m3g.PairwiseCost(lambda x, y: x)(torch.rand(3, 2, 4)), "ground must be a function that returns costs"),
        (lambda: as_cost(lambda x, y: x)(torch.rand(2, 3, 4)).dense(), "cost must be a function of 2 broadcastable"),
        (lambda: as_cost("x")(torch.rand(2, 3, 4)), "cost must be one of 'cosine', 'coulomb'"),
    ],
)
def test_invalid_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
