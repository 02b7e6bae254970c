"""With `fixed_steps` no solver reads tensor values on the host, which would synchronise with an accelerator."""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import m3g

READS = ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__", "nonzero")
SOLVERS = [m3g.Factored, m3g.Dense, m3g.Sinkhorn]


@pytest.fixture
def reads(monkeypatch):
    """The names of the methods by which values were read, in order."""
    names = []
    for name in READS:
        method = getattr(Tensor, name)

        def read(tensor, *args, name=name, method=method, **kwargs):
            names.append(name)
            return method(tensor, *args, **kwargs)

        monkeypatch.setattr(Tensor, name, read)
    return names


def gap(views, solver):
    """The gap of points of unit length, its gradient, and the error of the solve."""
    loss = m3g.M3GLoss(0.3, solver=solver, normalize=False)
    value = loss(views)
    (gradient,) = torch.autograd.grad(value.sum(), views)
    return value, gradient, loss.last.error


def points(k, batch=()):
    generator = torch.Generator().manual_seed(0)
    return torch.nn.functional.normalize(torch.randn(*batch, k, 5, 4, generator=generator), dim=-1).requires_grad_()


@pytest.mark.parametrize("batch", [(), (2,)], ids=["one", "batch"])
@pytest.mark.parametrize("k", [2, 3, 4, 5])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_fixed_number_of_steps_reads_no_value(reads, solver, k, batch):
    views = points(k, batch)
    actual = gap(views, solver(fixed_steps=20))
    assert reads == []
    assert actual[2].max() < 1e-3
    expected = gap(views, solver())
    assert len(reads) > 1  # the default reads its error
    torch.testing.assert_close(actual[:2], expected[:2], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_loss_with_a_fixed_number_of_steps_reads_no_value(solver, k):
    """Fake tensors raise if a value is read. Reads are not counted, because on a CPU the loss may read norms."""
    with FakeTensorMode(allow_non_fake_inputs=False):
        views = torch.randn(k, 5, 4, requires_grad=True)
        mask, teacher = torch.ones(k, 5, dtype=torch.bool), torch.randn(k, 5, 4)
        m3g.M3GLoss(0.3, solver=solver(fixed_steps=2))(views, mask=mask, teacher=teacher).backward()
        assert views.grad.shape == views.shape


def test_an_ascent_reads_twice_per_step(reads):
    """One read returns the error and the decrease of the dual, the other the status of the factorisation."""
    views = points(3)
    loss = m3g.M3GLoss(0.02, solver=m3g.Factored(), normalize=False)
    loss(views)
    assert loss.last.num_steps > 3
    assert reads.count("item") + reads.count("tolist") <= 2 * loss.last.num_steps + 4
    assert set(reads) <= {"item", "tolist"}
