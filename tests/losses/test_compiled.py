"""The loss under torch's compiler and transforms: one graph with fixed steps, one graph break without."""

import pytest
import torch
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import m3g

# Warnings from imports of inductor; all others are errors.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def fixed(steps=2):
    return m3g.M3GLoss(solver=m3g.Factored(fixed_steps=steps))


def batch(k, n, *, teacher):
    generator = torch.Generator().manual_seed(n)
    views = torch.randn(k, n, 5, generator=generator).requires_grad_()
    mask = torch.ones(k, n, dtype=torch.bool)
    mask[0, 0] = False
    return views, {"mask": mask, "teacher": torch.randn(k, n, 5, generator=generator)} if teacher else {}


def assert_same_as_eager(compiled, loss, k, n, *, teacher):
    views, options = batch(k, n, teacher=teacher)
    plain, value = loss(views, **options), compiled(views, **options)
    torch.testing.assert_close(value, plain)
    torch.testing.assert_close(torch.autograd.grad(value, views), torch.autograd.grad(plain, views))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "teacher", "dynamic", "graphs"), [(2, True, True, 1), (2, False, False, 2)], ids=["dynamic", "recompiling"]
)
def test_fixed_steps_compile_to_one_graph_for_a_changing_n(k, teacher, dynamic, graphs, capfd):
    """Recompiling is decided before the backend runs, so it is tested without the slow default backend."""
    loss = fixed(1)
    # The mode is recommended on GPUs.
    backend = {"mode": "reduce-overhead"} if dynamic else {"backend": "aot_eager"}
    compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic, **backend)
    for n in (6, 7, 9) if dynamic else (6, 7):
        assert_same_as_eager(compiled, loss, k, n, teacher=teacher)
    assert counters["stats"]["unique_graphs"] == graphs
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "n", "teacher", "backend"),
    [(3, 6, False, "inductor"), (5, 3, True, "aot_eager"), (6, 3, False, "aot_eager")],
)
def test_every_number_of_views_compiles_to_one_graph(k, n, teacher, backend, capfd):
    """The number of views changes the traced graphs, forward and backward, but no operator that inductor compiles."""
    loss = fixed(1)
    assert_same_as_eager(torch.compile(loss, fullgraph=True, backend=backend), loss, k, n, teacher=teacher)
    assert counters["stats"]["unique_graphs"] == 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize(("k", "teacher"), [(4, True), (6, False)])
def test_one_dynamic_graph_serves_every_n(k, teacher):
    """A graph is specialised to one n before the backend runs, so the test does not use the slow default backend."""
    loss = fixed(1)
    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="eager")
    for n in (3, 4, 7):
        assert_same_as_eager(compiled, loss, k, n, teacher=teacher)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("k", [2, 3, 4, 5, 6])
def test_fixed_steps_read_no_value_on_the_host(k):
    with FakeTensorMode(allow_non_fake_inputs=False):
        views, options = torch.randn(k, 4, 3, requires_grad=True), {}
        if k < 6:
            options = {"mask": torch.ones(k, 4, dtype=torch.bool), "teacher": torch.randn(k, 4, 3)}
        fixed(3)(views, **options).backward()
        assert views.grad.shape == views.shape
        with pytest.raises(DataDependentOutputException):  # this mode detects reads
            m3g.M3GLoss()(views)


@pytest.mark.filterwarnings("always")  # as errors, warnings that torch suppresses would end the test
def test_the_default_loss_causes_one_graph_break(capfd, recwarn):
    layer, loss = torch.nn.Linear(5, 4), m3g.M3GLoss()

    def model(views):
        return loss(layer(views)) * 2

    compiled = torch.compile(model, backend="aot_eager")
    for n in (6, 7):
        views = batch(3, n, teacher=False)[0]
        plain, value = model(views), compiled(views)
        torch.testing.assert_close(value, plain)
        torch.testing.assert_close(torch.autograd.grad(value, views), torch.autograd.grad(plain, views))
        if n == 6:
            assert counters["stats"]["unique_graphs"] == 2  # before the loss and after it
    assert len(counters["graph_break"]) == 1  # torch counts each frame and recompilation, but all at one place
    assert capfd.readouterr() == ("", "")
    assert [str(each.message) for each in recwarn if "torch.jit.script_method" not in str(each.message)] == []


def test_the_fixed_step_loss_supports_transforms():
    loss = fixed()
    views = torch.randn(4, 3, 6, 5, dtype=torch.float64, requires_grad=True)
    values = torch.stack([loss(each) for each in views])
    (gradients,) = torch.autograd.grad(values.sum(), views)
    views = views.detach()
    torch.testing.assert_close(torch.vmap(loss)(views), values.detach())
    torch.testing.assert_close(torch.func.grad(loss)(views[0]), gradients[0])
    torch.testing.assert_close(torch.func.jacrev(loss)(views[0]), gradients[0])
    torch.testing.assert_close(torch.vmap(torch.func.grad(loss))(views), gradients)


@pytest.mark.slow
def test_the_fixed_step_loss_can_be_exported():
    loss, k = fixed(), 4
    views = torch.randn(k, 6, 5)
    exported = torch.export.export(loss, (views,)).module()
    torch.testing.assert_close(exported(views.flip(1)), loss(views.flip(1)))
    any_n = torch.export.export(loss, (views,), dynamic_shapes=({1: torch.export.Dim.DYNAMIC},)).module()
    for n in (3, 6, 9):
        views = torch.randn(k, n, 5)
        torch.testing.assert_close(any_n(views), loss(views))


def test_unsupported_transforms_of_the_default_loss_name_a_remedy():
    views = torch.randn(2, 3, 6, 5)
    with pytest.raises(ValueError, match="pass the batch as leading dimensions"):
        torch.vmap(m3g.M3GLoss())(views)
    with pytest.raises(ValueError, match=r"solver must have fixed_steps under torch.export, got .*Factored\(fixed"):
        torch.export.export(m3g.M3GLoss(), (views[0],))


def sampled(steps=2, rounds=2):
    return m3g.M3GLoss(0.3, solver=m3g.Sampled(fixed_steps=steps, rounds=rounds, rank=64))


@pytest.mark.parametrize("k", [2, 3, 5])
def test_a_fixed_number_of_sampled_rounds_reads_no_value_on_the_host(k):
    with FakeTensorMode(allow_non_fake_inputs=False):
        views = torch.randn(k, 6, 4, requires_grad=True)
        sampled()(views, mask=torch.ones(k, 6, dtype=torch.bool)).backward()
        assert views.grad.shape == views.shape


@pytest.mark.slow
def test_a_fixed_number_of_sampled_rounds_compiles_to_one_graph():
    loss, exact = m3g.M3GLoss(0.3, solver=m3g.Sampled(fixed_steps=3, rank=256)), m3g.M3GLoss(0.3)
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    views = batch(3, 6, teacher=False)[0]
    value, true = compiled(views), exact(views)
    assert abs(value - true) < 5 * loss.last.standard_error + 1e-3
    (gradient,), (expected,) = torch.autograd.grad(value, views), torch.autograd.grad(true, views)
    assert torch.cosine_similarity(gradient.flatten(), expected.flatten(), dim=0) > 0.95


@pytest.mark.slow
def test_a_sampled_round_compiles_with_the_default_backend():
    """One round and its cross-check contain all operators; a second round would double the time of compilation."""
    loss = sampled(1, rounds=1)
    views = batch(3, 6, teacher=False)[0]
    results = []
    with torch._inductor.config.patch(fallback_random=True):  # the numbers that eager code draws
        for each in (loss, torch.compile(loss, fullgraph=True)):
            torch.manual_seed(0)
            value = each(views)
            results.append((value, *torch.autograd.grad(value, views)))
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-4)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.slow
def test_one_dynamic_graph_of_a_sampled_round_serves_every_n():
    loss = sampled(1)
    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="eager")
    for n in (6, 7, 9):
        views, results = batch(3, n, teacher=False)[0], []
        for each in (loss, compiled):
            torch.manual_seed(0)
            value = each(views)
            results.append((value, *torch.autograd.grad(value, views)))
        torch.testing.assert_close(results[1], results[0])
    assert counters["stats"]["unique_graphs"] == 1


def test_compiled_code_accepts_no_seed():
    loss = m3g.M3GLoss(solver=m3g.Sampled(fixed_steps=2, seed=0))
    with pytest.raises(Exception, match="seed and generator must be None in compiled code"):
        torch.compile(loss, fullgraph=True, backend="eager")(torch.randn(3, 6, 4))


@pytest.mark.slow
@pytest.mark.parametrize("cost", ["product", "cv"])
def test_gaps_with_the_rest_compile_to_one_graph(cost):
    loss = m3g.losses.M3GRest(cost=cost, solver=m3g.Factored(fixed_steps=2))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert_same_as_eager(compiled, loss, 3, 6, teacher=False)
    views, teacher = torch.randn(2, 3, 6, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(compiled(views, teacher=teacher), loss(views, teacher=teacher))


@pytest.mark.slow
@pytest.mark.parametrize("cost", ["product", "cv"])
def test_gaps_with_the_rest_of_incomplete_objects_compile_to_one_graph(cost):
    loss = m3g.losses.M3GRest(cost=cost, solver=m3g.Factored(fixed_steps=8))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    variable_steps = m3g.losses.M3GRest(cost=cost, tol=1e-6)
    generator = torch.Generator().manual_seed(0)
    leaf = torch.randn(3, 8, 5, generator=generator, dtype=torch.float64).requires_grad_()
    # The masks change the number of complete objects but not the graph. In the last one, view 2 has a single point.
    for missing in ([(0, 1), (1, 2), (2, 2)], [(0, 0), (1, 0), (2, 5)], [(2, i) for i in range(7)]):
        mask = torch.ones(3, 8, dtype=torch.bool)
        for view, point in missing:
            mask[view, point] = False
        values = [each(leaf, mask=mask) for each in (variable_steps, loss, compiled)]
        gradients = [torch.autograd.grad(value, leaf)[0] for value in values]
        for value, gradient in zip(values[1:], gradients[1:]):
            torch.testing.assert_close(value, values[0], rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(gradient, gradients[0], rtol=1e-3, atol=1e-5)
