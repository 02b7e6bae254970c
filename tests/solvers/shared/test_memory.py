"""The memory limit, and the workspace of a solve."""

import pytest
import torch

import m3g
from m3g.solvers.shared import memory
from m3g.solvers.shared.memory import Workspace, memory_limit


def test_the_limit_is_positive_and_does_not_depend_on_the_machine_while_compiling(monkeypatch):
    assert 2**20 < memory_limit(torch.device("cpu")) < 2**50
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert memory_limit(torch.device("cpu")) == memory.COMPILED_LIMIT


def test_tensors_of_a_workspace_do_not_overlap():
    space = Workspace(torch.zeros(1, dtype=torch.float64), 12)
    first, second, third = space.take(2, 3), space.take(6), space.take(4)
    for value, tensor in enumerate((first, second, third)):
        assert tensor.dtype == torch.float64
        tensor.fill_(value)
    assert [set(tensor.flatten().tolist()) for tensor in (first, second, third)] == [{0.0}, {1.0}, {2.0}]
    block = first.untyped_storage().data_ptr()
    assert second.untyped_storage().data_ptr() == block  # the first two share one block
    assert third.untyped_storage().data_ptr() != block  # the block has no space left


def test_a_block_larger_than_glibc_reuses_is_not_allocated(monkeypatch):
    monkeypatch.setattr(memory, "MAX_REUSED_BYTES", 32)
    space = Workspace(torch.zeros(1), 9)
    assert space.free.numel() == 0
    assert space.take(3, 3).shape == (3, 3)


@pytest.mark.parametrize(("n", "k", "kept"), [(16, 3, False), (64, 3, False), (64, 4, True)])
def test_freed_memory_is_kept_for_large_tables_only(monkeypatch, n, k, kept):
    """The largest table of the factored solver has n^(k-1) entries."""
    calls = []
    monkeypatch.setattr(memory, "_raise_threshold", lambda: calls.append(1))
    views = torch.randn(k, n, 4)
    m3g.solve(m3g.CircularVariance()(torch.nn.functional.normalize(views, dim=-1)), epsilon=0.5, solver=m3g.Factored())
    assert bool(calls) == kept
