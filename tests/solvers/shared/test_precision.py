"""Solves do not change the user's settings, also with threads."""

import threading

import pytest
import torch

from m3g.solvers.shared import precision
from m3g.solvers.shared.precision import full_precision

CPU = torch.device("cpu")


@pytest.fixture
def medium():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


def test_threads_that_overlap_restore_the_setting(medium):
    """The first thread that entered leaves before the second, which entered while the setting was changed."""
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()
    precisions = []

    def first():
        with full_precision(CPU):
            first_in.set()
            second_in.wait(10)
        first_out.set()

    def second():
        first_in.wait(10)
        with full_precision(CPU):
            second_in.set()
            first_out.wait(10)
            precisions.append(torch.backends.mkldnn.matmul.fp32_precision)

    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert precisions == ["ieee"]  # the first has left, the second still computes in full precision
    assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    assert torch.get_float32_matmul_precision() == "medium"


def test_solves_that_overlap_restore_the_global_setting_of_older_versions(medium, monkeypatch):
    monkeypatch.setattr(precision, "_BACKENDS", [])
    first = full_precision(CPU)
    first.__enter__()
    second = full_precision(CPU)
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.get_float32_matmul_precision() == "highest"  # the second still computes
    second.__exit__(None, None, None)
    assert torch.get_float32_matmul_precision() == "medium"


def test_changes_by_the_user_during_a_solve_are_kept(medium):
    with full_precision(CPU):
        torch.set_float32_matmul_precision("high")
    assert torch.get_float32_matmul_precision() == "high"
    assert torch.backends.mkldnn.matmul.fp32_precision == "tf32"
