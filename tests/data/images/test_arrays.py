"""Images in memory: class-aligned domains, and k augmentations of an image."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from m3g.data import Arrays, DomainArrays, ImageArrays
from m3g.data.images.arrays import augmented
from m3g.data.images.domain_arrays import shifted


@pytest.fixture
def domains(tmp_path):
    random = np.random.default_rng(0)
    arrays = {}
    for name, each in (("a", 5), ("b", 8), ("c", 4)):
        labels = np.repeat(list("uvwxyz"), each)
        arrays[name] = random.integers(0, 255, (len(labels), 9, 9, 3)).astype(np.uint8)
        arrays[f"{name}_label"] = labels
    np.savez(tmp_path / "sets.npz", **arrays)
    return tmp_path / "sets.npz"


@given(n=st.integers(1, 6), seed=st.integers(0, 50), held_out=st.sampled_from("abc"))
@settings(max_examples=15, deadline=None)
def test_batches_hold_different_classes_once_in_every_seen_domain(tmp_path_factory, n, seed, held_out):
    random = np.random.default_rng(seed)
    file = tmp_path_factory.mktemp("sets") / "sets.npz"
    labels = {name: np.repeat(list("uvwxyz"), each) for name, each in (("a", 5), ("b", 8), ("c", 4))}
    # two pixels of an image encode its class and domain, so that a batch can be decoded
    arrays = {}
    for d, (name, kinds) in enumerate(labels.items()):
        images = np.zeros((len(kinds), 4, 4), dtype=np.uint8)
        images[:, :, :2] = np.array([ord(kind) for kind in kinds])[:, None, None]
        images[:, :, 2:] = d
        order = random.permutation(len(kinds))
        arrays[name], arrays[f"{name}_label"] = images[order], kinds[order]
    np.savez(file, **arrays)
    data = DomainArrays(file, held_out=held_out, batch_size=n, points_per_epoch=4 * n, shift=0, seed=seed, val=0.2)
    assert held_out not in data.view_names
    draws = list(data.sampler())
    for start in range(0, len(draws), n):
        batch = data.datasets["train"].__getitems__(draws[start : start + n])
        pixels = [((view + 1) * 127.5).round() for view in batch["views"]]
        kinds = [[chr(int(value)) for value in view[:, 0, 0, 0]] for view in pixels]
        assert all(kinds[0] == other for other in kinds)
        assert len(set(kinds[0])) == n
        assert [data.class_names[c] for c in batch["label"]] == kinds[0]
        seen = [list("abc")[int(view[0, 0, 0, 3])] for view in pixels]
        assert seen == data.view_names


def test_images_in_memory_have_splits_and_domains(domains):
    data = DomainArrays(domains, held_out="c", batch_size=6, val=0.2, test=0.2)
    assert data.view_shapes == [(3, 9, 9)] * 2
    for name, number in (("a", 30), ("b", 48), ("c", 24)):
        assert sum(len(data.domain_rows(name, split)) for split in ("train", "val", "test")) == number
    batch = next(iter(data.domain_loader("c", "test")))
    assert len(batch["views"]) == 1
    with pytest.raises(ValueError, match="held_out must be some of a, b, c, got d"):
        DomainArrays(domains, held_out="d")
    with pytest.raises(ValueError, match="domains must include at least 2 not held out"):
        DomainArrays(domains, held_out=["a", "b"])
    with pytest.raises(ValueError, match="path must be an"):
        DomainArrays(domains.with_name("none.npz"))


def test_shifts_move_whole_images():
    images = torch.arange(25.0).view(1, 1, 5, 5).repeat(20, 1, 1, 1)
    moved = shifted(images, 1, np.random.default_rng(0))
    assert moved.shape == images.shape
    for image in moved[:, 0]:
        down, right = (image[2, 2] - 12).div(5).round(), 0
        right = image[2, 2] - 12 - 5 * down
        assert image[2, 1:4].tolist() == [float(12 + 5 * down + right + j) for j in (-1, 0, 1)]
    assert len({tuple(image.flatten().tolist()) for image in moved}) > 3


def test_views_are_augmentations_of_one_image_and_plain_in_evaluation(tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (40, 12, 12, 3)).astype(np.uint8)
    np.savez(tmp_path / "images.npz", images=images, label=np.arange(40) % 2)
    data = ImageArrays(tmp_path / "images.npz", k=3, batch_size=5)
    batch = next(iter(data.train_dataloader()))
    again = next(iter(data.train_dataloader()))
    assert all(torch.equal(one, other) for one, other in zip(batch["views"], again["views"]))
    assert not torch.equal(batch["views"][0], batch["views"][1])
    assert all(view.abs().max() <= 1 for view in batch["views"])
    plain = next(iter(data.loader("test")))
    assert torch.equal(plain["views"][0], plain["views"][2])
    expected = torch.from_numpy(images[plain["index"]]).permute(0, 3, 1, 2) / 127.5 - 1
    torch.testing.assert_close(plain["views"][0], expected.float())
    assert augmented(expected[:4].float(), np.random.default_rng(1)).isfinite().all()
    with pytest.raises(ValueError, match="k must be at least 2 views"):
        ImageArrays(tmp_path / "images.npz", k=1)


def test_rows_of_a_group_stay_in_one_split(tmp_path):
    random = np.random.default_rng(0)
    groups = np.array([f"subject{i % 7}" for i in range(70)])
    np.savez(tmp_path / "rows.npz", a=random.normal(size=(70, 3)), b=random.normal(size=(70, 2)), who=groups)
    file = tmp_path / "rows.npz"
    data = Arrays([f"{file}:a", f"{file}:b"], groups=f"{file}:who", val=0.2, test=0.2)
    seen = [set(groups[data.datasets[split].index.numpy()]) for split in ("train", "val", "test")]
    assert sum(map(len, seen)) == 7
    assert len(set.union(*seen)) == 7
    with pytest.raises(ValueError, match="groups must have 70 names"):
        Arrays([f"{file}:a", f"{file}:b"], groups=f"{file}:a")
