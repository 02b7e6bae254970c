"""Image sets in their public layouts: trees of domains, folders of classes, Tiny-ImageNet, fonts."""

import zipfile

import numpy as np
import pytest
from PIL import Image

from experiments.miniature import write_sets
from m3g.experiments.sources import images
from m3g.experiments.sources.files import MissingData


def picture(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(value)
    Image.fromarray(random.integers(0, 255, (20, 24, 3)).astype(np.uint8)).save(path)


def arrays(file):
    with np.load(file) as stored:
        return {name: stored[name] for name in stored.files}


def same(one, two):
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def test_a_tree_of_pacs_and_its_archive_give_the_same_arrays(tmp_path):
    write_sets(tmp_path)
    with zipfile.ZipFile(tmp_path / "pacs_64jpg.zip") as archive:
        archive.extractall(tmp_path / "public")
    images.prepare_tree("pacs", tmp_path, tmp_path / "a")
    images.prepare_tree("pacs", tmp_path / "public", tmp_path / "b")
    assert same(arrays(tmp_path / "a" / "pacs_edges.npz"), arrays(tmp_path / "b" / "pacs_edges.npz"))


def test_downloaded_tiny_imagenet_and_its_archive_give_the_same_arrays(tmp_path):
    public = tmp_path / "sets" / "tiny-imagenet-200"
    notes = []
    with zipfile.ZipFile(tmp_path / "tinyimagenet10_jpg.zip", "w") as archive:
        for number, kind in enumerate((*images.TEN_CLASSES, "n09999999")):
            train, val = f"{kind}_0.JPEG", f"val_{number}.JPEG"
            picture(public / "train" / kind / "images" / train, number)
            picture(public / "val" / "images" / val, 100 + number)
            notes.append(f"{val}\t{kind}\t0\t0\t9\t9\n")
            if kind in images.TEN_CLASSES:
                archive.write(public / "train" / kind / "images" / train, f"train/{kind}/{train}")
                archive.write(public / "val" / "images" / val, f"val/{kind}/{val}")
    (public / "val" / "val_annotations.txt").write_text("".join(notes))
    images.prepare_tinyimagenet(tmp_path, tmp_path / "a")
    images.prepare_tinyimagenet(tmp_path / "sets", tmp_path / "b")
    prepared = arrays(tmp_path / "b" / "tinyimagenet.npz")
    assert same(arrays(tmp_path / "a" / "tinyimagenet.npz"), prepared)
    assert prepared["images"].shape == (20, 32, 32, 3)
    with pytest.raises(MissingData, match="train/CLASS/IMAGE and val/CLASS/IMAGE"):
        images.prepare_folders(tmp_path / "sets", tmp_path / "c")  # its val has no folders of classes


def test_office_home_is_read_with_any_separators_and_reduced_to_laptop_size(tmp_path, monkeypatch):
    tree = images.Tree(images.TREES["office-home"].domains, classes=2, images=3)
    monkeypatch.setitem(images.TREES, "office-home", tree)
    for domain in ("Art", "Clipart", "Product", "Real_World"):
        for kind in ("Alarm_Clock", "Bike", "Mug"):
            for number in range(4):
                picture(tmp_path / "OfficeHomeDataset" / domain / kind / f"{number:05}.jpg", number)
    images.prepare_tree("office-home", tmp_path, tmp_path / "out")
    prepared = arrays(tmp_path / "out" / "office-home_edges.npz")
    assert sorted(set(prepared["Real World_label"])) == ["Alarm_Clock", "Bike"]
    assert {len(prepared[domain]) for domain in tree.domains} == {6}


def test_images_of_other_class_folders_become_squares(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "MAX_IMAGES", 3)
    for part in ("train", "val"):
        for kind in ("n01440764", "n02102040"):
            for number in range(2):
                picture(tmp_path / "imagenette2" / part / kind / f"{part}{number}.png", number)
    images.prepare_folders(tmp_path, tmp_path / "out")
    prepared = arrays(tmp_path / "out" / "folders.npz")
    assert prepared["images"].shape == (6, 32, 32, 3)
    assert list(prepared["label"]) == ["n01440764"] * 3 + ["n02102040"] * 3


def test_missing_files_are_named(tmp_path):
    with pytest.raises(MissingData, match="the folders art_painting, cartoon, photo, sketch with CLASS/IMAGE"):
        images.prepare_tree("pacs", tmp_path, tmp_path / "out")
    with pytest.raises(
        MissingData, match=r"fonts_5styles_28.npz or fonts.npz \(made by m3g prepare fonts\), got no folder"
    ):
        images.prepare_fonts(None, tmp_path / "out")
    np.savez(tmp_path / "fonts.npz", serif=np.zeros((1, 62, 28, 28)), chars=np.array(["a"]))
    with pytest.raises(MissingData, match="lacks display, handwriting, monospace, sans_serif"):
        images.prepare_fonts(tmp_path, tmp_path / "out")
    (tmp_path / "train").mkdir()
    with pytest.raises(MissingData, match="contains val, got"):
        images.check_paper_folders(tmp_path, tmp_path)
    assert not (tmp_path / "out").exists()
