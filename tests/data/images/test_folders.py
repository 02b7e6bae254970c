"""Images in class folders: splits, augmentations, and errors."""

import pytest
import torch

from m3g.data import ImageFolders
from m3g.data.images.reading import load_image
from pictures import draw


@pytest.fixture
def folders(tmp_path):
    """Three classes of ten images in class folders."""
    for c, name in enumerate(["ape", "bee", "cat"]):
        for i in range(10):
            draw(tmp_path / name / f"{name}_{i}.jpg", 60 * c)
    return tmp_path


def test_image_folders_split_by_seed(folders):
    data = ImageFolders(folders, k=3, size=16, batch_size=4)
    assert (data.k, data.num_classes, data.class_names) == (3, 3, ["ape", "bee", "cat"])
    assert data.view_shapes == [(3, 16, 16)] * 3
    assert [data.num_rows(split) for split in ("train", "val", "test")] == [21, 3, 6]
    loader = data.train_dataloader()
    first = next(iter(loader))
    assert [tuple(view.shape) for view in first["views"]] == [(4, 3, 16, 16)] * 3
    assert not torch.equal(first["views"][0], first["views"][1])
    again = next(iter(ImageFolders(folders, k=3, size=16, batch_size=4).train_dataloader()))
    assert all(torch.equal(a, b) for a, b in zip(first["views"], again["views"]))
    loader.sampler.set_epoch(1)
    assert not torch.equal(next(iter(loader))["views"][0], first["views"][0])


def test_a_resumed_epoch_has_the_same_augmentations(folders):
    def batches(skip):
        loader = ImageFolders(folders, k=2, size=16, batch_size=5).train_dataloader()
        loader.sampler.resume(epoch=0, batches=skip)
        return list(loader)

    for resumed, expected in zip(batches(2), batches(0)[2:], strict=True):
        assert torch.equal(resumed["index"], expected["index"])
        assert all(torch.equal(a, b) for a, b in zip(resumed["views"], expected["views"]))


def test_evaluation_views_are_augmented_unless_plain(folders):
    views, mask, labels = ImageFolders(folders, k=2, size=16).arrays("test")
    assert mask is None
    assert torch.bincount(labels).tolist() == [2, 2, 2]
    assert not torch.equal(views[0], views[1])
    for split in ("train", "test"):
        views, _, _ = ImageFolders(folders, k=2, size=16, evaluation_views="plain").arrays(split)
        assert torch.equal(views[0], views[1])


def test_augmenting_on_the_device_gives_the_same_views(folders):
    on_cpu = next(iter(ImageFolders(folders, size=16, batch_size=4).train_dataloader()))
    data = ImageFolders(folders, size=16, batch_size=4, augment_on="device")
    raw = next(iter(data.train_dataloader()))
    assert "views" not in raw  # a plain loop must not mistake raw images for views
    on_device = data.on_after_batch_transfer(raw, 0)
    assert on_device.keys() == on_cpu.keys()
    assert all(torch.equal(a, b) for a, b in zip(on_cpu["views"], on_device["views"]))
    for split in ("train", "val"):  # evaluation requires no trainer
        assert len(data.arrays(split)[0]) == 2


def test_folders_train_and_val_are_the_splits(tmp_path):
    for split, count in (("train", 6), ("val", 2)):
        for c in range(2):
            for i in range(count):
                draw(tmp_path / split / f"n0{c}" / "images" / f"{i}.JPEG", 50 * c)
    data = ImageFolders(tmp_path, size=16, batch_size=2)
    assert [data.num_rows(split) for split in ("train", "val", "test")] == [12, 4, 4]
    assert data.class_names == ["n00", "n01"]
    assert data.arrays("test")[2].tolist() == [0, 0, 1, 1]


def test_images_require_no_classes(tmp_path):
    for i in range(12):
        draw(tmp_path / f"{i}.png", 10 * i)
    data = ImageFolders(tmp_path, size=16, batch_size=2)
    assert data.num_classes is None
    assert next(iter(data.train_dataloader()))["label"] is None


def test_errors_of_invalid_image_folders_are_one_sentence(folders, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    cases = [
        ({"root": empty / "none"}, "folder that exists"),
        ({"root": empty}, "must contain images"),
        ({"root": folders, "k": 1}, "k must be 2, 3 or 4"),
        ({"root": folders, "stacks": ["simclr"]}, "k >= 2"),
        ({"root": folders, "stacks": ["simclr", "moco"]}, "stack must be one of"),
        ({"root": folders, "augment_on": "moon"}, "augment_on must be"),
        ({"root": folders, "evaluation_views": "some"}, "evaluation_views must be"),
    ]
    for options, words in cases:
        with pytest.raises(ValueError, match=words):
            ImageFolders(**options)
    draw(empty / "one" / "0.jpg", 0)
    with pytest.raises(ValueError, match="at least 2 class folders, got only 'one'"):
        ImageFolders(empty)
    for name in ("train/one", "train/two", "val/three"):
        draw(empty / name / "0.jpg", 0)
    with pytest.raises(ValueError, match="only classes of train in 'val', got 'three'"):
        ImageFolders(empty)
    (folders / "ape" / "broken.jpg").write_text("not an image")
    with pytest.raises(ValueError, match=r"except for at most 1 %, got 1 damaged of \d+: .*broken\.jpg"):
        ImageFolders(folders, size=16)
    with pytest.raises(ValueError, match=r"readable files, got .*broken\.jpg"):
        load_image(folders / "ape" / "broken.jpg", 16)
    (folders / "ape" / "broken.jpg").unlink()
    draw(folders / "loose.jpg", 0)
    with pytest.raises(ValueError, match="class folders or none"):
        ImageFolders(folders)
