"""The order of batches: a function of seed and epoch, divided among processes, and resumable."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributed

from m3g.data import ClassAlignedSampler, EpochSampler


def batches(sampler):
    draws = [draw.row for draw in sampler]
    return [draws[start : start + sampler.batch_size] for start in range(0, len(draws), sampler.batch_size)]


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 80), size=st.integers(1, 9), world=st.integers(1, 4), epoch=st.integers(0, 3))
def test_batches_of_all_processes_form_the_batch_of_one(n, size, world, epoch):
    if size * world > n:
        with pytest.raises(ValueError, match="batch_size must be at most"):
            EpochSampler(n, batch_size=size, world=world, rank=0)
        return
    alone = EpochSampler(n, batch_size=size * world, world=1, rank=0, seed=5)
    alone.set_epoch(epoch)
    ranks = []
    for rank in range(world):
        sampler = EpochSampler(n, batch_size=size, world=world, rank=rank, seed=5)
        sampler.set_epoch(epoch)
        assert len(list(sampler)) == len(sampler)
        ranks.append(batches(sampler))
    for step, whole in enumerate(batches(alone)):
        assert sorted(whole) == sorted(row for rank in ranks for row in rank[step])
        assert all(rank[step] == whole[r::world] for r, rank in enumerate(ranks))
    seen = [row for rank in ranks for batch in rank for row in batch]
    assert len(seen) == len(set(seen)) == n - alone.num_unused
    assert alone.num_unused < size * world


def test_order_depends_on_seed_and_epoch_alone():
    def order(seed, epoch):
        sampler = EpochSampler(50, batch_size=5, seed=seed)
        sampler.set_epoch(epoch)
        return [draw.row for draw in sampler]

    assert order(0, 3) == order(0, 3)
    different = {tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(different) == 9  # (seed 0, epoch 1) is not (seed 1, epoch 0)


@settings(deadline=None, max_examples=20)
@given(skip=st.integers(0, 5), world=st.integers(1, 2))
def test_resuming_skips_the_completed_batches_once(skip, world):
    sampler = EpochSampler(60, batch_size=5, world=world, rank=world - 1)
    sampler.set_epoch(2)
    full = list(sampler)
    sampler.resume(epoch=2, batches=skip)
    assert list(sampler) == full[skip * 5 :]
    assert list(sampler) == full
    sampler.resume(epoch=2, batches=skip)
    sampler.set_epoch(3)  # only the interrupted epoch is resumed
    assert len(list(sampler)) == len(sampler)


def test_resuming_beyond_the_last_batch_is_an_error():
    with pytest.raises(ValueError, match="from 0 to 2"):
        EpochSampler(10, batch_size=4).resume(epoch=0, batches=3)


def test_skipped_rows_are_reported(caplog):
    with caplog.at_level("INFO", logger="m3g.data.sampling"):
        sampler = EpochSampler(10, batch_size=4)
    assert sampler.num_unused == 2
    assert "2 of 10 rows, different in each epoch, are not used" in caplog.text


def test_rank_and_number_of_processes_come_from_torch(monkeypatch):
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(distributed, "get_rank", lambda: 1)
    expected = list(EpochSampler(20, batch_size=3, rank=1, world=2))
    assert list(EpochSampler(20, batch_size=3)) == expected


def domains(num_classes, per_class):
    """Two domains; image numbers encode domain and class: 1000 * domain + 10 * class + j."""
    return [{c: [1000 * l + 10 * c + j for j in range(per_class)] for c in range(num_classes)} for l in range(2)]


@pytest.mark.parametrize(("size", "world"), [(4, 1), (3, 2), (5, 3)])
def test_a_class_aligned_point_has_one_class_and_classes_of_a_batch_differ(size, world):
    num_classes = 7
    steps = []
    for rank in range(world):
        sampler = ClassAlignedSampler(domains(num_classes, 4), points=60, batch_size=size, world=world, rank=rank)
        steps.append(batches(sampler))
    for step in range(len(steps[0])):
        for rank in steps:
            classes = [{image % 1000 // 10 for image in point} for point in rank[step]]
            assert all(len(kinds) == 1 for kinds in classes)  # a point has one class in all domains
            assert len(set.union(*classes)) == size  # all different within a process
            assert all([image // 1000 for image in point] == [0, 1] for point in rank[step])
        if size * world <= num_classes:
            together = {image % 1000 // 10 for rank in steps for point in rank[step] for image in point}
            assert len(together) == size * world


def test_class_aligned_visits_all_classes_and_images():
    sampler = ClassAlignedSampler(domains(5, 3), points=400, batch_size=4)
    images = {image for point in sampler.order(0) for image in point}
    assert images == set(np.concatenate([np.concatenate(list(d.values())) for d in domains(5, 3)]))


def test_a_class_aligned_batch_requires_enough_classes():
    with pytest.raises(ValueError, match="at most 5, the number of classes"):
        ClassAlignedSampler(domains(5, 3), points=60, batch_size=6)
