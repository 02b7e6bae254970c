"""Random crops and flips for the paper's linear probe."""

import numpy as np
import pytest
import torch
from PIL import Image

from m3g.data import ImageFolders
from m3g.data.images.crops import RandomCrops
from pictures import draw


@pytest.fixture
def data(tmp_path):
    for c, name in enumerate(["ape", "bee"]):
        for i in range(10):
            draw(tmp_path / name / f"{name}_{i}.png", 60 * c)
    return ImageFolders(tmp_path, size=16, batch_size=4, evaluation_views="plain", seed=3)


def test_crops_differ_between_epochs_and_are_seeded(data):
    files = data.files_of("train")
    loader, sampler = RandomCrops(data, files).loader(batch_size=7)

    def epoch(number):
        sampler.set_epoch(number)
        batches = list(loader)
        order = torch.cat([batch["index"] for batch in batches]).argsort()
        labels = torch.cat([batch["label"] for batch in batches])[order]
        return torch.cat([batch["views"][0] for batch in batches])[order], labels

    first, labels = epoch(0)
    assert first.shape == (14, 3, 16, 16)
    assert torch.equal(labels, data.labels[torch.tensor(files)])
    assert torch.equal(epoch(0)[0], first)
    assert not torch.equal(epoch(1)[0], first)
    assert len(loader) == 2


def test_half_of_the_crops_are_flipped(tmp_path):
    """The red value of the image increases from left to right, and therefore that of a crop unless it is flipped."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(100):
            pixels = np.zeros((40, 40, 3), np.uint8)
            pixels[..., 0] = np.arange(40) * 6
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    data = ImageFolders(tmp_path, size=8, batch_size=4, evaluation_views="plain")
    crops, _ = RandomCrops(data, list(range(200))).loader(batch_size=200)
    (batch,) = crops
    red = batch["views"][0][:, 0]
    flipped = red[:, :, 0].mean(1) > red[:, :, -1].mean(1)
    assert 70 < int(flipped.sum()) < 130


def test_crops_require_classes(tmp_path):
    for i in range(12):
        draw(tmp_path / f"{i}.png", 100)
    with pytest.raises(ValueError, match="data must have labels"):
        RandomCrops(ImageFolders(tmp_path, size=16), [0, 1])
