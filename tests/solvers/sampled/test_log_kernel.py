"""The two forms of the sampled kernel: unbiased, consistent with themselves, and with exact gradients."""

import pytest
import torch

import m3g
from m3g.costs import Coupling, all_edges, as_cost
from m3g.costs.coupling import TensorCoupling
from m3g.solvers.sampled.ascent import ascend_dual
from m3g.solvers.sampled.draws import DefaultDraws, GeneratorDraws
from m3g.solvers.sampled.error import _TrueMatching
from m3g.solvers.sampled.log_kernel import (
    LogResultantKernel,
    MultilinearKernel,
    PairKernel,
    ResultantKernel,
    SumKernel,
    log_kernel_of,
)
from m3g.solvers.sampled.product_kernel import product_list
from m3g.solvers.sampled.proposals import anchors_of, tuple_list
from m3g.solvers.sampled.tuple_kernel import full_list, sampled_list

EPSILON = 0.2


def problem_of(sizes, *, b=1, d=6, seed=0, dtype=torch.float64, cost=None):
    generator = torch.Generator().manual_seed(seed)
    views = [torch.randn(b, n, d, generator=generator, dtype=dtype) for n in sizes]
    return (cost or m3g.CircularVariance())([torch.nn.functional.normalize(view, dim=-1) for view in views])


def kernel_list(form, log_kernel, seed, rank=32, b=1, *, anchored=True):
    if form == "full":
        return full_list(log_kernel)
    draws = seed if isinstance(seed, GeneratorDraws) else draws_of(seed)
    centres = draws.tuples(log_kernel.sizes, b, rank // 4)
    zero = torch.zeros_like(log_kernel.shift)
    target = torch.cat([torch.full((b, n), 1 / n, dtype=torch.float64) for n in log_kernel.sizes], 1)
    anchors = anchors_of(target, log_kernel.sizes)[:, : None if anchored else 0]
    build = product_list if form == "products" else tuple_list
    return build(log_kernel, centres, zero, 4, draws, anchors)


def draws_of(seed):
    return GeneratorDraws(torch.device("cpu"), torch.Generator().manual_seed(seed))


def coupling_of(kernel):
    zero = torch.zeros_like(kernel.base)
    return kernel.with_base(zero).coupling_at(zero, torch.ones(len(zero), 1, dtype=torch.float64))


@pytest.mark.parametrize("sizes", [(3, 3, 3), (4, 3, 5), (2, 2, 2, 2), (3, 4)])
@pytest.mark.parametrize(
    ("kind", "cost"),
    [
        (ResultantKernel, "cv"),
        (PairKernel, "cv"),
        (LogResultantKernel, "csd"),
        (MultilinearKernel, "product"),
        (SumKernel, "0.5*cv + 2*product[:4] + csd"),
    ],
)
def test_log_kernels_give_the_cost_whichever_view_is_open(kind, cost, sizes):
    problem = problem_of(sizes, b=2, cost=as_cost(cost))
    grids = torch.meshgrid(*[torch.arange(n) for n in sizes], indexing="ij")
    tuples = torch.stack([grid.reshape(-1) for grid in grids], -1).expand(2, -1, -1)
    log_kernel = kind(problem, EPSILON)
    shift = sum(part.gather(1, tuples[..., l]) for l, part in enumerate(log_kernel.shift.split(list(sizes), 1)))
    for l in range(len(sizes)):
        own = log_kernel.conditional(l, tuples).gather(2, tuples[..., l : l + 1]).squeeze(2)
        found = (shift - own - log_kernel.rest(l, tuples)) * EPSILON
        torch.testing.assert_close(found.reshape(2, *sizes), problem.dense(), atol=1e-10, rtol=0)
        assert float((own + log_kernel.rest(l, tuples)).abs().max()) <= log_kernel.reach()


FORMS = [("products", "cv"), ("tuples", "cv"), ("tuples", "csd"), ("tuples", "product"), ("tuples", "cv + product[:4]")]


@pytest.mark.parametrize(("form", "cost"), FORMS)
@pytest.mark.parametrize("sizes", [(4, 4, 4), (3, 3, 3, 3), (2, 4, 3)])
def test_the_kernel_is_estimated_without_bias(form, cost, sizes):
    problem = problem_of(sizes, cost=as_cost(cost))
    log_kernel = log_kernel_of(problem, EPSILON)
    source, draws = draws_of(0), []
    for turn in range(400):
        coupling = coupling_of(kernel_list(form, log_kernel, source, anchored=turn % 2 == 0))
        ((_, tensor),) = coupling.rows()
        draws.append(tensor * (-coupling.log_factor).exp().reshape(-1, *[1] * len(sizes)))
    draws = torch.cat(draws)
    shift = torch.zeros(1, *[1] * len(sizes), dtype=torch.float64)
    for l, part in enumerate(log_kernel.shift.split(list(sizes), 1)):
        shift = shift + part.reshape([1] + [-1 if m == l else 1 for m in range(len(sizes))])
    true = (shift - problem.dense() / EPSILON).exp()
    scatter = draws.std(0) / len(draws) ** 0.5
    score = (draws.mean(0) - true[0]).abs() / (scatter + 1e-9 * true[0])
    assert float(score.max()) < 5
    assert abs(float(draws.mean(0).sum() / true.sum()) - 1) < 0.05


@pytest.mark.parametrize(
    ("form", "sizes"),
    [
        *((form, sizes) for form in ("products", "tuples", "full") for sizes in [(5, 5, 5), (3, 6, 4), (3, 3, 3, 3)]),
        ("products", (4, 5)),
        ("full", (4, 5)),
    ],
)
def test_marginals_pairs_pull_and_the_full_tensor_agree(form, sizes):
    problem = problem_of(sizes, b=2)
    kernel = kernel_list(form, log_kernel_of(problem, EPSILON), 1, b=2)
    coupling = coupling_of(kernel)
    ((_, tensor),) = coupling.rows()
    k = len(sizes)
    torch.testing.assert_close(tensor.flatten(1).sum(1), torch.ones(2, dtype=torch.float64))
    for l in range(k):
        gone = [m + 1 for m in range(k) if m != l]
        torch.testing.assert_close(coupling.marginal(l), tensor.sum(gone))
    for l, m in all_edges(k):
        gone = [other + 1 for other in range(k) if other not in (l, m)]
        torch.testing.assert_close(coupling.pair(l, m), tensor.sum(gone) if gone else tensor)
    points = problem.tensors[0]
    torch.testing.assert_close(coupling.pull(points), Coupling.pull(coupling, points))
    if form != "products":
        for measure in (coupling, coupling.directional_derivative(points.mean(-1), kernel.half_signs())):
            found = measure.weighted_pull(points, torch.exp)
            torch.testing.assert_close(found, Coupling.weighted_pull(measure, points, torch.exp))
            torch.testing.assert_close(measure.product_pull(points), Coupling.product_pull(measure, points))
    plain = Coupling.weighted_pull(coupling, points, torch.ones_like)
    torch.testing.assert_close(plain, coupling.pull(points))


def test_the_true_matching_is_pulled_as_the_full_tensor_would_be():
    problem = problem_of((4, 4, 4), b=2)
    matching = _TrueMatching(problem, torch.tensor([[1.0], [2.0]], dtype=torch.float64))
    tensor = torch.zeros(2, 4, 4, 4, dtype=torch.float64)
    for i in range(4):
        tensor[:, i, i, i] = torch.tensor([0.25, 0.5])
    points = problem.tensors[0]
    torch.testing.assert_close(matching.pull(points), Coupling.pull(TensorCoupling(tensor), points))
    expected = Coupling.weighted_pull(TensorCoupling(tensor), points, torch.exp)
    torch.testing.assert_close(matching.weighted_pull(points, torch.exp), expected)
    torch.testing.assert_close(matching.product_pull(points), TensorCoupling(tensor).product_pull(points))


@pytest.mark.parametrize("form", ["products", "tuples", "full"])
def test_directional_derivative_matches_finite_differences(form):
    problem = problem_of((4, 3, 5))
    kernel = kernel_list(form, log_kernel_of(problem, EPSILON), 2)
    direction = torch.randn(1, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    coupling = coupling_of(kernel)
    derivative = coupling.directional_derivative(direction, None)
    points = problem.tensors[0]

    def coupling_along(step):
        there = kernel.with_base(torch.zeros_like(direction)).coupling_at(
            step * direction, torch.ones(1, 1, dtype=torch.float64)
        )
        return there, (-there.log_factor + coupling.log_factor).exp()

    (ahead, grown), (behind, shrunk) = coupling_along(1e-5), coupling_along(-1e-5)
    for measure in (lambda c: c.marginals(), lambda c: c.pull(points)):
        difference = (measure(ahead) * grown.reshape(-1) - measure(behind) * shrunk.reshape(-1)) / 2e-5
        torch.testing.assert_close(measure(derivative), difference, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("cost", [m3g.CircularVariance(), m3g.CircularStd(), m3g.MultilinearProduct()])
def test_the_gradient_is_exact_with_the_tuples_held_fixed(cost):
    sizes = (6, 6, 6)
    problem = problem_of(sizes, cost=cost)
    kernel = kernel_list("tuples", log_kernel_of(problem, EPSILON), 4)
    samples = kernel.blocks[0].tuples[:, kernel.blocks[0].num_exact :]
    counts = torch.zeros(*samples.shape, dtype=torch.float64)
    target = torch.full((1, 18), 1 / 6, dtype=torch.float64)

    def solved(points):
        other = cost(points.reshape(3, 6, 6))
        log_kernel = log_kernel_of(other, EPSILON)
        kernel = sampled_list(log_kernel, samples, counts, samples[:, :0])
        point = ascend_dual(kernel, target, torch.zeros_like(target), tol=1e-11, max_steps=100).point
        assert float(point.error) < 1e-10
        value = (((point.log_scaling + log_kernel.shift) * EPSILON - EPSILON / 3) * target).sum()
        return value, other.gradient(point.coupling)[0]

    points = problem.tensors[0].detach()
    _, gradient = solved(points)
    generator = torch.Generator().manual_seed(5)
    for _ in range(3):
        direction = torch.randn(points.shape, dtype=torch.float64, generator=generator)
        ahead, behind = solved(points + 1e-5 * direction)[0], solved(points - 1e-5 * direction)[0]
        assert float((ahead - behind) / 2e-5) == pytest.approx(float((gradient * direction).sum()), rel=1e-6)


def test_a_full_list_is_the_kernel():
    problem = problem_of((3, 4, 2), b=2)
    log_kernel = log_kernel_of(problem, EPSILON)
    kernel = full_list(log_kernel)
    ((_, tensor),) = coupling_of(kernel).rows()
    shift = sum(
        part.reshape([2] + [-1 if m == l else 1 for m in range(3)])
        for l, part in enumerate(log_kernel.shift.split([3, 4, 2], 1))
    )
    dense = (shift - problem.dense() / EPSILON).exp()
    torch.testing.assert_close(tensor, dense / dense.sum((1, 2, 3), keepdim=True))
    assert kernel.exact
    assert coupling_of(kernel).sample_weights().shape == (2, 0)


def test_anchors_support_a_coupling_with_the_weights():
    generator = torch.Generator().manual_seed(0)
    sizes = (3, 5, 2)
    weights = [torch.rand(2, n, generator=generator, dtype=torch.float64) for n in sizes]
    target = torch.cat([weight / weight.sum(1, keepdim=True) for weight in weights], 1)
    anchors = anchors_of(target, sizes)
    ends = torch.cat([part.cumsum(1) for part in target.split(list(sizes), 1)], 1).sort(1).values
    masses = ends.diff(dim=1, prepend=torch.zeros(2, 1, dtype=torch.float64))
    for l, part in enumerate(target.split(list(sizes), 1)):
        found = torch.zeros_like(part).scatter_add_(1, anchors[..., l], masses)
        torch.testing.assert_close(found, part)


def test_draws_of_a_seed_do_not_depend_on_the_default_dtype():
    expected = draws_of(0).uniform(8)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        actual = draws_of(0).uniform(8)
        assert DefaultDraws(torch.device("cpu")).uniform(8).dtype == torch.float32
    finally:
        torch.set_default_dtype(before)
    assert actual.dtype == torch.float32
    assert torch.equal(actual, expected)
