"""Truncated images in trees and in DomainNet's lists; domains that lack classes or a list."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

from m3g.data import Domains, ImageFolders
from m3g.data.storage.damaged import damaged_images


def draw(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def tree(tmp_path):
    """101 images of two classes, one of them truncated like an interrupted download."""
    for i in range(101):
        draw(tmp_path / "ab"[i % 2] / f"{i:03}.jpg", i)
    truncate(tmp_path / "a" / "100.jpg")
    return tmp_path


def truncate(path):
    path.write_bytes(path.read_bytes()[:-40])


def test_a_truncated_jpeg_is_skipped_counted_and_named(tree, caplog):
    data = ImageFolders(tree, size=8, batch_size=4)
    assert sum(data.num_rows(split) for split in ("train", "val", "test")) == 100
    assert "1 of 101 images are damaged and skipped" in caplog.text
    assert "100.jpg" in caplog.text
    assert all(path.name != "100.jpg" for path in data.files)


def test_more_than_one_percent_of_damaged_images_is_an_error_that_names_them(tree):
    truncate(tree / "b" / "001.jpg")
    with pytest.raises(ValueError, match=r"got 2 damaged of 101: .*100\.jpg, .*001\.jpg"):
        ImageFolders(tree, size=8)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp", ".webp"])
def test_truncated_and_foreign_images_are_damaged(tmp_path, suffix):
    whole, trailing = tmp_path / f"whole{suffix}", tmp_path / f"trailing{suffix}"
    for path in (whole, trailing):
        draw(path, 0)
    trailing.write_bytes(trailing.read_bytes() + b"\0\0")  # as some cameras write
    assert damaged_images([whole, trailing] * 100) == set()
    bad = [tmp_path / f"{name}{suffix}" for name in ("short", "empty", "text")]
    bad[0].write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    bad[1].write_bytes(b"")
    bad[2].write_text("not an image, whatever its name says")
    for path in bad:
        assert damaged_images([whole] * 100 + [path]) == {path}


@pytest.fixture
def domainnet(tmp_path):
    """Three domains of 4 classes with 26 images each, by DomainNet's list files; quickdraw lacks class 3."""
    for domain in ("clipart", "quickdraw", "real"):
        for split, images in (("train", range(20)), ("test", range(20, 26))):
            lines = []
            for c in range(3 if domain == "quickdraw" else 4):
                for i in images:
                    name = f"{domain}/class{c}/{domain}_{c}_{i}.jpg"
                    draw(tmp_path / name, i)
                    lines.append(f"{name} {c}")
            (tmp_path / f"{domain}_{split}.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_classes_missing_in_a_domain_are_skipped_with_a_note(domainnet, caplog):
    data = Domains(domainnet, size=8, batch_size=3, val=0.2)
    assert "1 classes are missing from at least one domain in split train" in caplog.text
    drawn = {int(data.labels[i]) for draw_ in data.sampler() for i in draw_.row}
    assert drawn == {0, 1, 2}
    assert data.arrays("test")[2].unique().tolist() == [0, 1, 2]


def test_a_truncated_jpeg_of_a_list_is_skipped(domainnet, caplog):
    truncate(domainnet / "real" / "class0" / "real_0_0.jpg")
    data = Domains(domainnet, size=8, batch_size=3)
    assert "1 of 104 images are damaged and skipped" in caplog.text
    assert all(path.name != "real_0_0.jpg" for path in data.files)


def test_a_missing_list_or_domain_is_named(domainnet):
    with pytest.raises(ValueError, match=r"domains must be some of clipart, quickdraw, real, got sketch, real"):
        Domains(domainnet, domains=["sketch", "real"])
    (domainnet / "clipart_train.txt").rename(domainnet / "elsewhere")
    with pytest.raises(ValueError, match=r"root must have clipart_train.txt next to clipart_test.txt, got none"):
        Domains(domainnet)
    (domainnet / "elsewhere").rename(domainnet / "clipart_train.txt")
    shutil.rmtree(domainnet / "quickdraw")
    with pytest.raises(ValueError, match=r"must list files that exist, got .*quickdraw_0_0.jpg"):
        Domains(domainnet)


def test_domains_without_a_common_class_are_an_error(tmp_path):
    for domain, names in (("clipart", "ab"), ("real", "cd")):
        for name in names:
            for i in range(5):
                draw(tmp_path / domain / name / f"{i}.jpg", i)
    with pytest.raises(ValueError, match="domains must share at least one class, got none"):
        Domains(tmp_path, size=8)
