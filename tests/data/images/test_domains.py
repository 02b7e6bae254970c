"""Folders and list files of images in several domains."""

import pytest
import torch

from m3g.data import Domains
from pictures import draw


@pytest.fixture
def domain_folders(tmp_path):
    """Three domains of four classes of five images; the red value encodes the domain."""
    for l, domain in enumerate(["clipart", "real", "sketch"]):
        for c in range(4):
            for i in range(5):
                draw(tmp_path / domain / f"class{c}" / f"{domain}_{c}_{i}.png", [80 * l, 50 * c, 0], (12, 12))
    return tmp_path


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
    with pytest.raises(ValueError, match="next to real_train"):
        Domains(domain_folders, size=16)


def test_errors_of_invalid_domains_are_one_sentence(domain_folders):
    cases = [
        ({"root": domain_folders / "none"}, "folder that exists"),
        ({"root": domain_folders, "domains": ["real", "photo"]}, "domains must be some of clipart, real, sketch"),
        ({"root": domain_folders, "held_out": ["photo"]}, "held_out must be some of"),
        ({"root": domain_folders, "held_out": ["real", "sketch"]}, "at least 2 that are not held out"),
        ({"root": domain_folders, "points_per_epoch": 0}, "points_per_epoch must be a whole number of at least 1"),
    ]
    for options, words in cases:
        with pytest.raises(ValueError, match=words):
            Domains(**options)
    with pytest.raises(ValueError, match="at most 4, the number of classes"):
        Domains(domain_folders, size=16, batch_size=5).train_dataloader()
