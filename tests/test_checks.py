"""Invalid arguments raise a ValueError of one line; views of several dtypes are promoted."""

import pytest
import torch

import m3g
from m3g import _checks
from m3g.costs import as_cost

X = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
COST = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))


def sparse():
    return X.to_sparse()


def nested():
    return torch.nested.nested_tensor([X[0], X[1]])


WRONG = {
    "edge weight": lambda: m3g.PairwiseCost(weights={(0, 1): "a"}),
    "edge weight None": lambda: m3g.PairwiseCost(weights={(0, 1): None}),
    "edge weight NaN": lambda: m3g.PairwiseCost(weights={(0, 1): float("nan")}),
    "weights of words": lambda: m3g.solve(COST, epsilon=0.1, weights=["a", "b"]),
    "weights of None": lambda: m3g.solve(COST, epsilon=0.1, weights=[None, None]),
    "weights 5": lambda: m3g.solve(COST, epsilon=0.1, weights=5),
    "weights a word": lambda: m3g.solve(COST, epsilon=0.1, weights="ab"),
    "weights of a batch": lambda: m3g.solve(COST, epsilon=0.1, weights=[torch.rand(2, 3), torch.rand(4)]),
    "weights that overflow": lambda: m3g.solve(
        COST, epsilon=0.1, weights=[torch.full((n,), 1e308, dtype=torch.float64) for n in (3, 4)]
    ),
    "sparse weights": lambda: m3g.solve(COST, epsilon=0.1, weights=[torch.ones(3).to_sparse() / 3, torch.ones(4) / 4]),
    "sparse cost": lambda: m3g.solve(COST.to_sparse(), epsilon=0.1),
    "meta cost": lambda: m3g.solve(COST.to("meta"), epsilon=0.1),
    "sparse views": lambda: m3g.matching_gap(sparse()),
    "meta views": lambda: m3g.matching_gap(X.to("meta")),
    "list of meta views": lambda: m3g.CircularVariance()([view.to("meta") for view in X]),
    "list of sparse views": lambda: m3g.PairwiseCost()([view.to_sparse() for view in X]),
    "nested views": lambda: m3g.matching_gap(nested()),
    "sparse teacher": lambda: m3g.M3GLoss()(X, teacher=sparse()),
    "sparse mask": lambda: m3g.M3GLoss()(X, mask=torch.ones(3, 5, dtype=torch.bool).to_sparse()),
    "meta mask": lambda: m3g.M3GLoss()(X, mask=torch.ones(3, 5, dtype=torch.bool, device="meta")),
    "vmap of solve": lambda: torch.vmap(lambda cost: m3g.solve(cost, epsilon=0.1).value)(torch.rand(2, 3, 4)),
    "vmap of a problem": lambda: torch.vmap(lambda x: m3g.solve(m3g.CircularVariance()(x), epsilon=0.1).value)(
        X.expand(2, 3, 5, 4)
    ),
    "rest": lambda: _checks.non_negative("rest", "a"),
    "rest None": lambda: _checks.non_negative("rest", None),
    "rest True": lambda: _checks.non_negative("rest", True),
    "huge epsilon": lambda: m3g.matching_gap(X, epsilon=10**400),
    "fraction": lambda: _checks.fraction("part", "a"),
    "match a word": lambda: m3g.match("abc"),
    "match words": lambda: m3g.match(["abc", "def"]),
    "match a number": lambda: m3g.match(5),
    "match None": lambda: m3g.match([None, None]),
    "match sparse": lambda: m3g.match([view.to_sparse() for view in X]),
    "match meta": lambda: m3g.match([view.to("meta") for view in X]),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", WRONG)
def test_invalid_arguments_are_errors_of_one_line(name):
    with pytest.raises(ValueError, match=" must ") as raised:
        WRONG[name]()
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_error_about_a_nested_tensor_does_not_suggest_to_dense():
    with pytest.raises(ValueError, match=r"^views must be dense tensors, got a nested tensor\.$"):
        m3g.matching_gap(nested())


def inner_product(x, y):
    return (x * y).sum(-1)


@pytest.mark.filterwarnings("ignore::m3g.solvers.RangeWarning")
@pytest.mark.parametrize("cost", ["cv", "csd", "sqeuclidean", "cosine", "coulomb", "product", inner_product])
def test_views_of_several_types_are_promoted(cost):
    narrow, wide = X[0].float(), X[1].double()
    exact = as_cost(cost)([narrow.double(), wide])
    for views in ([narrow, wide], [wide[:5], narrow[:5]]):
        problem = as_cost(cost)(views)
        assert problem.dtype == torch.float64
        assert m3g.solve(problem, epsilon=0.5).value.dtype == torch.float64
        assert problem.dense().dtype == torch.float64
    torch.testing.assert_close(as_cost(cost)([narrow, wide]).dense(), exact.dense())
    half = as_cost(cost)([narrow.half(), narrow.bfloat16()])
    assert half.dtype == torch.float32
    assert m3g.solve(half, epsilon=0.5).value.dtype == torch.float32


def test_a_ground_cost_may_return_another_type():
    def mixed(x, y):
        return torch.cdist(x, y).to(torch.float64 if x.shape[1] == 3 else torch.float16)

    problem = m3g.PairwiseCost(mixed)([X[0][:3], X[1][:4], X[2]])
    assert {tensor.dtype for tensor in problem.tensors} == {torch.float64}
    assert m3g.solve(problem, epsilon=0.5).converged


def test_teachers_and_students_of_several_types_are_promoted():
    loss = m3g.M3GLoss()
    exact = loss(X.double(), teacher=X.double().flip(0))
    for student, teacher in ((X, X.double().flip(0)), (X.double(), X.flip(0))):
        value = loss(student, teacher=teacher)
        assert value.dtype == torch.float64
        torch.testing.assert_close(value, exact)


def test_views_of_several_types_are_matched():
    matching = m3g.match([X[0], X[0].double(), X[0].half()])
    assert matching.tuples.tolist() == [[i, i, i] for i in range(5)]


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e8, 1e25])
@pytest.mark.parametrize("solver", ["auto", m3g.Factored(fixed_steps=10)])
def test_the_gap_of_normalised_views_does_not_depend_on_their_scale(scale, solver):
    views = (X * scale).requires_grad_()
    gap = m3g.matching_gap(views, epsilon=0.1, solver=solver)
    torch.testing.assert_close(gap, m3g.matching_gap(X, epsilon=0.1, solver=solver), rtol=1e-5, atol=1e-6)
    (gradient,) = torch.autograd.grad(gap, views)
    plain = X.clone().requires_grad_()
    (expected,) = torch.autograd.grad(m3g.matching_gap(plain, epsilon=0.1, solver=solver), plain)
    torch.testing.assert_close(gradient.double() * scale, expected.double(), rtol=1e-3, atol=1e-6)
    tuples = m3g.match(list(X.double() * scale)).tuples
    assert torch.equal(tuples, m3g.match(list(X.double())).tuples)
