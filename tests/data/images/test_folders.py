import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from m3g.data import Domains, ImageFolders
from m3g.data.images.augment import IMAGENET_STACKS, STACKS, Augmentation, plain, random_box
from m3g.data.images.reading import load_crops, load_image


def draw(path, colour, size=(20, 16)):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(zlib.crc32(path.name.encode())).integers(0, 40, (size[1], size[0], 3))
    Image.fromarray((noise + colour).astype(np.uint8)).save(path)


@pytest.fixture
def folders(tmp_path):
    """Three classes of ten images in class folders."""
    for c, name in enumerate(["ape", "bee", "cat"]):
        for i in range(10):
            draw(tmp_path / name / f"{name}_{i}.jpg", 60 * c)
    return tmp_path


@pytest.fixture
def domain_folders(tmp_path):
    """Three domains of four classes of five images; the red value encodes the domain."""
    for l, domain in enumerate(["clipart", "real", "sketch"]):
        for c in range(4):
            for i in range(5):
                draw(tmp_path / domain / f"class{c}" / f"{domain}_{c}_{i}.png", [80 * l, 50 * c, 0], (12, 12))
    return tmp_path


@pytest.mark.parametrize("stack", STACKS)
def test_stacks_are_seeded_and_leave_the_random_state_alone(stack):
    images = torch.rand(6, 3, 40, 40)
    augment = Augmentation(stack, size=32)
    state = torch.random.get_rng_state()
    first = augment(images, seed=(0, 1))
    assert torch.equal(state, torch.random.get_rng_state())
    torch.manual_seed(1234)
    assert torch.equal(first, augment(images, seed=(0, 1)))
    assert not torch.equal(first, augment(images, seed=(0, 2)))
    assert first.shape == (6, 3, 32, 32)
    assert bool(first.isfinite().all())
    bytes_in = augment((images * 255).round().byte(), seed=(0, 1))
    torch.testing.assert_close(bytes_in, first, atol=0.15, rtol=0)


def test_stacks_match_the_paper():
    steps = {stack: list(Augmentation(stack, size=224).steps) for stack in STACKS}

    def one(stack, kind):
        return next((step for step in steps[stack] if type(step).__name__ == kind), None)

    assert IMAGENET_STACKS == ("byol-global1", "byol-global2", "simclr", "byol-global1")
    assert [one(stack, "RandomGaussianBlur").p for stack in STACKS] == [1.0, 0.1, 0.5]
    assert [one(stack, "RandomSolarize") is not None for stack in STACKS] == [False, True, False]
    assert one("byol-global2", "RandomSolarize").p == 0.2
    for stack in STACKS:
        assert one(stack, "RandomGaussianBlur").flags["kernel_size"] == (23, 23)
        assert one(stack, "RandomHorizontalFlip").p == 0.5
        assert one(stack, "ColorJitter").p == 0.8
        assert one(stack, "RandomGrayscale").p == 0.2
    with pytest.raises(ValueError, match="stack must be one of"):
        Augmentation("byol", size=32)


def test_plain_images_are_resized_cropped_normalised():
    grey = torch.full((2, 3, 64, 64), 0.5)
    out = plain(grey, size=56)
    assert out.shape == (2, 3, 56, 56)
    expected = (0.5 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(out[0, :, 10, 10], expected)


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

    for ours, theirs in zip(batches(2), batches(0)[2:], strict=True):
        assert torch.equal(ours["index"], theirs["index"])
        assert all(torch.equal(a, b) for a, b in zip(ours["views"], theirs["views"]))


def test_evaluation_views_are_augmented_unless_plain(folders):
    views, mask, labels = ImageFolders(folders, k=2, size=16).arrays("test")
    assert mask is None
    assert torch.bincount(labels).tolist() == [2, 2, 2]
    assert not torch.equal(views[0], views[1])
    for split in ("train", "test"):
        views, _, _ = ImageFolders(folders, k=2, size=16, evaluation_views="plain").arrays(split)
        assert torch.equal(views[0], views[1])


def test_augmenting_on_the_device_gives_the_same_views(folders):
    here = next(iter(ImageFolders(folders, size=16, batch_size=4).train_dataloader()))
    data = ImageFolders(folders, size=16, batch_size=4, augment_on="device")
    raw = next(iter(data.train_dataloader()))
    assert "views" not in raw  # a plain loop must not mistake raw images for views
    there = data.on_after_batch_transfer(raw, 0)
    assert there.keys() == here.keys()
    assert all(torch.equal(a, b) for a, b in zip(here["views"], there["views"]))
    for split in ("train", "val"):  # evaluation needs no trainer
        assert len(data.arrays(split)[0]) == 2


def test_training_crops_reach_the_margins_of_a_wide_image(tmp_path):
    """A centre crop before the random one would never show them."""
    wide = np.zeros((16, 64, 3), dtype=np.uint8)
    wide[:, :22] = 255  # the centre crop begins at column 24
    for i in range(8):
        Image.fromarray(wide).save(tmp_path / f"{i}.png")
    data = ImageFolders(tmp_path, k=2, size=16, batch_size=4, val=0.0, test=0.0, augment_on="device")
    images = torch.cat([torch.cat(batch["images"]) for batch in data.train_dataloader()]).float()
    bright = images.amax((1, 2, 3)) > 200
    assert images.shape == (16, 3, 16, 16)
    assert 0 < int(bright.sum()) < 16
    assert not torch.equal(images[:4], images[4:8])


@pytest.mark.parametrize("size", [(640, 480), (10, 400), (400, 10), (1, 1)])
def test_boxes_have_the_area_and_ratio_of_the_paper(size):
    random = np.random.default_rng(0)
    boxes = np.array([random_box(*size, random) for _ in range(300)])
    across, down = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert (boxes >= 0).all()
    assert (boxes[:, 2] <= size[0] + 1e-9).all()
    assert (boxes[:, 3] <= size[1] + 1e-9).all()
    assert ((across / down > 0.749) & (across / down < 1.334)).all()
    if size == (640, 480):
        area = across * down / (640 * 480)
        assert area.min() < 0.15
        assert area.max() > 0.8
        assert area.min() >= 0.08


def test_crops_of_one_image_differ_and_are_seeded(tmp_path):
    draw(tmp_path / "a.png", 100)
    randoms = [[np.random.default_rng(seed) for seed in (0, 1, 0)] for _ in range(2)]
    first, again = (load_crops(tmp_path / "a.png", 8, group) for group in randoms)
    assert first.shape == (3, 3, 8, 8)
    assert torch.equal(first, again)
    assert torch.equal(first[0], first[2])
    assert not torch.equal(first[0], first[1])


def test_folders_train_and_val_are_the_splits(tmp_path):
    for split, count in (("train", 6), ("val", 2)):
        for c in range(2):
            for i in range(count):
                draw(tmp_path / split / f"n0{c}" / "images" / f"{i}.JPEG", 50 * c)
    data = ImageFolders(tmp_path, size=16, batch_size=2)
    assert [data.num_rows(split) for split in ("train", "val", "test")] == [12, 4, 4]
    assert data.class_names == ["n00", "n01"]
    assert data.arrays("test")[2].tolist() == [0, 0, 1, 1]


def test_images_need_no_classes(tmp_path):
    for i in range(12):
        draw(tmp_path / f"{i}.png", 10 * i)
    data = ImageFolders(tmp_path, size=16, batch_size=2)
    assert data.num_classes is None
    assert next(iter(data.train_dataloader()))["label"] is None


def test_load_image_keeps_the_centre(tmp_path):
    wide = np.zeros((10, 30, 3), dtype=np.uint8)
    wide[:, 10:20] = 200
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert bool((load_image(tmp_path / "wide.png", 10) == 200).all())
    Image.new("L", (8, 8), 7).save(tmp_path / "grey.png")
    assert bool((load_image(tmp_path / "grey.png", 4) == 7).all())


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


def test_domains_batches_are_class_aligned(domain_folders):
    data = Domains(domain_folders, held_out=["sketch"], size=16, batch_size=3, stack="byol-global2", val=0.2)
    assert (data.view_names, data.held_out, data.num_classes) == (["clipart", "real"], ["sketch"], 4)
    assert data.points_per_epoch == 12  # 4 classes, 3 training images each
    batches = list(data.train_dataloader())
    assert len(batches) == 4
    for batch in batches:
        assert len(set(batch["label"].tolist())) == 3
        assert [tuple(view.shape) for view in batch["views"]] == [(3, 3, 16, 16)] * 2
    sampler = data.sampler()
    for draw_ in sampler:
        names = [data.files[i].parts[-3:-1] for i in draw_.row]
        assert [domain for domain, _ in names] == ["clipart", "real"]
        assert len({label for _, label in names}) == 1


def test_domains_are_the_views_in_evaluation(domain_folders):
    data = Domains(domain_folders, held_out="sketch", size=16, batch_size=3)
    views, _, labels = data.arrays("test")
    assert labels.tolist() == [0, 1, 2, 3]
    red = [view[:, 0].mean() for view in views]
    assert red[1] > red[0]  # the views are the domains in order
    held = list(data.domain_loader("sketch", "test"))
    assert torch.cat([batch["label"] for batch in held]).tolist() == [0, 1, 2, 3]
    assert all(len(batch["views"]) == 1 for batch in held)
    with pytest.raises(ValueError, match="domain must be one of"):
        data.domain_loader("infograph", "test")


def test_domainnet_list_files_are_read(domain_folders):
    for domain in ("clipart", "real"):
        for split, images in (("train", range(4)), ("test", [4])):
            lines = [f"{domain}/class{c}/{domain}_{c}_{i}.png {c}" for c in range(4) for i in images]
            (domain_folders / f"{domain}_{split}.txt").write_text("\n".join(lines) + "\n")
    data = Domains(domain_folders, size=16, batch_size=2, val=0.25)
    assert data.view_names == ["clipart", "real"]
    assert [data.num_rows(split) for split in ("train", "val", "test")] == [12, 4, 4]
    assert all(data.files[i].stem.endswith("_4") for point in data.datasets["test"].points for i in point)
    listed = domain_folders / "real_test.txt"
    for line, words in (
        ("real/class0", "lines 'path label'"),
        ("real/none.png 0", "files that exist"),
        ("../../etc/passwd 0", "paths below root"),
    ):
        listed.write_text(line)
        with pytest.raises(ValueError, match=words):
            Domains(domain_folders, size=16)
    listed.unlink()
    with pytest.raises(ValueError, match="beside real_train"):
        Domains(domain_folders, size=16)


def test_errors_of_invalid_domains_are_one_sentence(domain_folders):
    cases = [
        ({"root": domain_folders / "none"}, "folder that exists"),
        ({"root": domain_folders, "domains": ["real", "photo"]}, "domains must be some of clipart, real, sketch"),
        ({"root": domain_folders, "held_out": ["photo"]}, "held_out must be some of"),
        ({"root": domain_folders, "held_out": ["real", "sketch"]}, "at least 2 not held out"),
        ({"root": domain_folders, "points_per_epoch": 0}, "points_per_epoch must be a whole number of at least 1"),
    ]
    for options, words in cases:
        with pytest.raises(ValueError, match=words):
            Domains(**options)
    with pytest.raises(ValueError, match="at most 4, the number of classes"):
        Domains(domain_folders, size=16, batch_size=5).train_dataloader()
