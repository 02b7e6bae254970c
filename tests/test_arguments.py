"""Arguments of losses, solvers, costs and `match`: wrong types are errors; NumPy numbers are accepted."""

import numpy as np
import pytest
import torch

import m3g
from m3g import _values

X = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
COST = m3g.CircularVariance()
CALLS = {
    "match": lambda **options: m3g.match(X, **options),
    "solve": lambda **options: m3g.solve(COST(X), **{"epsilon": 0.1, **options}),
    "matching_gap": lambda **options: m3g.matching_gap(X, **options),
    "M3GLoss": m3g.M3GLoss,
    "M3GRest": m3g.losses.M3GRest,
    "InfoNCEPairwise": m3g.losses.InfoNCEPairwise,
    "symile": lambda **options: m3g.losses.symile(X, **options),
    "Symile": m3g.losses.Symile,
    "average_of_rest": lambda **options: m3g.losses.average_of_rest(X, m3g.losses.byol, **options),
    "Dense": m3g.Dense,
    "Factored": m3g.Factored,
    "Sampled": m3g.Sampled,
    "Sinkhorn": m3g.Sinkhorn,
    "LinearProgram": m3g.LinearProgram,
    "PairwiseCost": m3g.PairwiseCost,
}
FLAGS = {
    "match": ["normalize", "one_to_one"],
    "solve": ["differentiable"],
    "matching_gap": ["normalize"],
    "M3GLoss": ["normalize", "gather", "shard"],
    "M3GRest": ["renormalize"],
    "InfoNCEPairwise": ["learn_temperature"],
    "symile": ["rescale", "normalize"],
    "Symile": ["rescale"],
    "average_of_rest": ["renormalize", "symmetric", "normalize"],
    "Factored": ["newton"],
}
NUMBERS = {
    "match": ["epsilon", "temperature", "tol"],
    "solve": ["epsilon", "tol"],
    "matching_gap": ["epsilon", "temperature", "tol"],
    "M3GLoss": ["epsilon", "temperature", "final_epsilon", "final_temperature", "tol"],
    "Sampled": ["rtol"],
    "PairwiseCost": ["neutral"],
}
COUNTS = {
    "match": ["alternatives"],
    "Dense": ["max_steps", "fixed_steps", "memory_limit"],
    "Factored": ["max_steps", "check_every", "fixed_steps"],
    "Sampled": ["rank", "rounds", "max_rank", "max_steps", "fixed_steps", "seed"],
    "Sinkhorn": ["max_steps", "check_every", "fixed_steps", "memory_limit"],
    "LinearProgram": ["max_tuples"],
}


def pairs(table):
    return [(function, name) for function, names in table.items() for name in names]


@pytest.mark.parametrize(("function", "name"), pairs(FLAGS))
def test_flags_are_true_or_false(function, name):
    for value in ("yes", 1, 0.0, np.int64(1), torch.tensor(True), np.array([True, False])):
        with pytest.raises(ValueError, match=f"^{name} must be True or False, got .*[.]$"):
            CALLS[function](**{name: value})
    for true in (np.bool_(True), np.array(True)):
        CALLS[function](**{name: true})


@pytest.mark.parametrize(("function", "name"), pairs(NUMBERS))
def test_numbers_are_finite_and_not_bools(function, name):
    for value in ("0.1", True, np.bool_(True), float("nan"), np.float32("nan"), np.array([0.5]), torch.ones(2, 2)):
        with pytest.raises(ValueError, match=f"^{name} must be a [a-z ]*number, got .*[.]$"):
            CALLS[function](**{name: value})
    for number in (np.float32(0.5), np.float64(0.5), np.int64(1), np.array(0.5)):
        CALLS[function](**{name: number})


@pytest.mark.parametrize(("function", "name"), pairs(COUNTS))
def test_counts_are_whole_numbers(function, name):
    for value in ("1", 1.0, True, np.float64(1), float("nan"), -1, np.array([1])):
        with pytest.raises(ValueError, match=f"^{name} must be a whole number .*, got .*[.]$"):
            CALLS[function](**{name: value})
    for number in (np.int64(1), np.uint8(1), np.array(1)):
        CALLS[function](**{name: number})


def test_a_required_option_must_not_be_none():
    for solver, name in ((m3g.Dense, "max_steps"), (m3g.Sampled, "rank"), (m3g.Sinkhorn, "max_steps")):
        with pytest.raises(ValueError, match=f"^{name} must be a whole number of at least 1, got None[.]$"):
            solver(**{name: None})


def test_solvers_store_python_numbers():
    assert repr(m3g.Sampled(rank=np.int64(64), seed=np.int64(3))) == repr(m3g.Sampled(rank=64, seed=3))
    assert repr(m3g.Factored(newton=np.bool_(False))) == repr(m3g.Factored(newton=False))
    assert m3g.solvers.as_solver({"name": "sampled", "rank": np.int64(512)}).rank == 512


@pytest.mark.parametrize("value", [None, 0, 1, "yes", float("nan"), np.array([0.5])])
def test_allow_unmatched_is_a_bool_or_a_probability(value):
    with pytest.raises(ValueError, match=r"^allow_unmatched must be True, False or a probability between 0 and 1, got"):
        m3g.match(X, allow_unmatched=value)


def test_allow_unmatched_may_be_a_numpy_value():
    expected = m3g.match(X, allow_unmatched=0.5)
    for value in (np.float32(0.5), np.array(0.5), np.bool_(True)):
        assert m3g.match(X, allow_unmatched=value).tuples.tolist() == expected.tuples.tolist()


@pytest.mark.parametrize("known", ["yes", [["a", "b", "c"]], {}, [[2**70, 0, 0]], [[0, 1], [2]], 0.5])
def test_known_must_be_an_array_of_whole_numbers(known):
    with pytest.raises(ValueError, match=r"^known must be an array of whole numbers of shape \(r, 3\), got .*[.]$"):
        m3g.match(X, one_to_one=True, known=known)


@pytest.mark.parametrize("weight", ["yes", None, True, float("nan"), -1, torch.tensor(2.0)])
def test_weights_of_costs_are_positive_numbers(weight):
    for product in (lambda: weight * COST, lambda: COST * weight):
        with pytest.raises(ValueError, match=r"^the weight of a cost must be a positive (finite )?number, got"):
            product()
    with pytest.raises(ValueError, match=r"^weights\[\(0, 1\)\] must be a finite number of at least 0, got"):
        m3g.PairwiseCost(weights={(0, 1): weight if not isinstance(weight, torch.Tensor) else "x"})


def test_costs_accept_numpy_numbers():
    for weight in (np.float32(0.5), np.float64(0.5), np.array(0.5)):
        assert repr(weight * COST) == repr(COST * weight) == "0.5 * CircularVariance(scale='definition')"
    assert COST[np.int64(1) : np.int32(3)] == COST[1:3]
    assert COST[: np.float32(0.5)] == COST[:0.5]
    costs = m3g.PairwiseCost(weights={(np.int64(0), np.int64(1)): np.float32(2)})(X).dense()
    assert torch.equal(costs, m3g.PairwiseCost(weights={(0, 1): 2.0})(X).dense())


@pytest.mark.parametrize("bound", ["1", True, -1, 1.5, float("nan"), np.array([1])])
def test_bounds_of_a_range_are_whole_numbers_or_fractions(bound):
    with pytest.raises(ValueError, match=r"^start must be a whole number of features or a fraction from 0.0 to 1.0"):
        COST[bound:]


def test_wrong_types_of_costs_and_progress_are_errors():
    with pytest.raises(ValueError, match=r"^cost must be a cost object, got str 'cv'"):
        m3g.costs.RestrictedCost("cv", 0, 2)
    with pytest.raises(ValueError, match=r"^weights must be a mapping of pairs to numbers, got int 3"):
        m3g.PairwiseCost(weights=3)
    with pytest.raises(ValueError, match=r"^progress must be a finite number, got 'end'"):
        m3g.M3GLoss(temperature=0.2, final_temperature=0.1).set_progress("end")
    with pytest.raises(ValueError, match=r"^l must be the index of a view, from 0 to 2, got True"):
        m3g.solve(COST(X), epsilon=0.1).marginal(True)


def test_values_are_shown_on_one_line():
    with pytest.raises(ValueError, match=r"^x must be True or False, got array\(\[\[0\., 0\.\], .{50,80}\.$"):
        _values.flag("x", np.zeros((9, 2)))
    assert _values.plain(np.timedelta64(5, "s")) == np.timedelta64(5, "s")
