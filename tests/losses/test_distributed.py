"""Two real processes: with `gather=True` they compute what one process computes on the full batch."""

from __future__ import annotations

import pytest
import torch

import forked
import m3g
from losses import two_processes as two

CASES = list(two.cases())
pytestmark = pytest.mark.filterwarnings("ignore:mcca requires batches")  # which are small here


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Return the results of both processes."""
    return forked.in_group(two.compute, two.WORLD, tmp_path_factory.mktemp("gather"))


def close(ours, expected):
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def label(case):
    name, options, masked, with_teacher = case
    return " ".join([name, *map(str, options.values()), "masked" * masked, "teacher" * with_teacher]).strip()


@pytest.mark.parametrize("gather", [True, False])
@pytest.mark.parametrize("case", CASES, ids=label)
def test_gather_equals_one_process_with_the_full_batch(ranks, case, gather):
    name, options, masked, with_teacher = case
    # In one process there is nothing to gather. Shuffles and directions are those that rank 0 draws.
    module = two.model(name, {**options, "gather": gather}, seed=0)
    loss, gradients = two.loss_and_gradients(module, two.data(masked, with_teacher))
    assert any((gradient != 0).any() for gradient in gradients)
    for results in ranks:
        their_loss, their_gradients = results[name, str(options), masked, with_teacher, True]
        close(their_loss, loss)
        close(their_gradients, gradients)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_the_default_is_the_mean_over_the_processes(ranks, case):
    name, options, masked, with_teacher = case
    halves = []
    for rank, results in enumerate(ranks):
        batch = two.share(two.data(masked, with_teacher), rank)
        halves.append(two.loss_and_gradients(two.model(name, options, seed=rank), batch))
        close(results[name, str(options), masked, with_teacher, False][0], halves[rank][0])
    means = [(a + b) / 2 for a, b in zip(halves[0][1], halves[1][1])]
    for results in ranks:
        close(results[name, str(options), masked, with_teacher, False][1], means)


@pytest.mark.parametrize("wrapped", ["model", "encoders"])
@pytest.mark.parametrize("case", CASES, ids=label)
def test_chunks_equal_the_full_batch_and_reduce_gradients_once(ranks, case, wrapped):
    name, options, masked, with_teacher = case
    for results in ranks:
        if (name, str(options), masked, with_teacher, wrapped) not in results["chunks"]:
            assert list(two.model(name, options, seed=0).loss.parameters())
            continue
        *chunked, reductions = results["chunks"][name, str(options), masked, with_teacher, wrapped]
        close(tuple(chunked), results[name, str(options), masked, with_teacher, True])
        assert reductions == 1


def test_incompatible_inputs_raise_on_all_processes(ranks):
    first, second = (results["refusals"] for results in ranks)
    assert first == second
    sizes, teachers, types = first
    assert "one shape on all processes with gather=True, got [(3, 5, 6), (3, 4, 6)] by rank" in sizes
    assert "teacher = [False, True]" in teachers
    assert "float64 = [False, True]" in types


def test_a_process_without_a_mask_has_no_missing_points(ranks):
    inputs, mask, _ = two.data(masked=True, with_teacher=False)
    mask[:, : two.N] = True
    loss, gradients = two.loss_and_gradients(two.model("polyview", {}, 0), (inputs, mask, None))
    for results in ranks:
        close(results["mask on one process"][0], loss)
        close(results["mask on one process"][1], gradients)


@pytest.mark.filterwarnings("ignore::m3g.solvers.SamplingWarning")
def test_solvers_that_draw_at_random_draw_the_same_on_all_processes(ranks):
    for first, second in zip(*(results["random solvers"] for results in ranks), strict=True):
        assert torch.equal(first, second)
    batch = two.share(two.data(False, False), 0)
    single = [two.model("m3g", {"solver": m3g.Sampled(rank=4, seed=seed)}, 0)(*batch).detach() for seed in range(2)]
    assert not torch.equal(*single)
