"""Settings of accelerators, as far as a CPU supports them: one captured graph, and reduced precision."""

import pytest
import torch

import m3g
import reference

SOLVERS = {
    "factored": m3g.Factored,
    "dense": m3g.Dense,
    "sinkhorn": m3g.Sinkhorn,
    "sampled": lambda **options: m3g.Sampled(rank=256, seed=0, form="products", **options),
}
FIXED = [("dense", "product"), ("sinkhorn", "cv")]  # test_compiled.py captures the factored solver, in this mode too
K, N = 3, 24


def gap_and_gradient(loss):
    views = reference.noisy_views(K, N, 16, dtype=torch.float32).requires_grad_()
    value = loss(views)
    value.backward()
    return value.detach(), views.grad


def lower_tf32():
    torch.backends.cuda.matmul.allow_tf32 = True


def lower_precision():
    torch.set_float32_matmul_precision("medium")


@pytest.fixture(params=[lower_tf32, lower_precision])
def lower(request):
    """Return a function that reduces the precision of matrix products until the end of the test."""
    precision = torch.get_float32_matmul_precision()
    yield request.param
    torch.set_float32_matmul_precision(precision)


@pytest.mark.parametrize("steps", [None, 6], ids=["default", "fixed"])
@pytest.mark.parametrize("name", SOLVERS)
def test_reduced_matmul_precision_changes_no_result(lower, name, steps):
    if name == "sampled" and steps is not None:
        steps = 4
    loss = m3g.M3GLoss(0.3, solver=SOLVERS[name](**({} if steps is None else {"fixed_steps": steps})))
    expected = gap_and_gradient(loss)
    lower()
    torch.testing.assert_close(gap_and_gradient(loss), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # of inductor itself
@pytest.mark.parametrize(("name", "cost"), FIXED)
def test_fixed_steps_are_captured_as_one_graph(name, cost):
    loss = m3g.M3GLoss(0.3, cost=cost, solver=SOLVERS[name](fixed_steps=1))
    expected = gap_and_gradient(loss)
    torch.compiler.reset()
    compiled = torch.compile(loss, fullgraph=True, mode="reduce-overhead")
    torch.testing.assert_close(gap_and_gradient(compiled), expected, rtol=1e-4, atol=1e-6)
