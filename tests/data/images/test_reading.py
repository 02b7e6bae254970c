"""Centre crops and random crops of image files."""

import numpy as np
import torch
from PIL import Image

from m3g.data import ImageFolders
from m3g.data.images.reading import load_crops, load_image
from pictures import draw


def test_training_crops_reach_the_margins_of_a_wide_image(tmp_path):
    """A centre crop before the random crop would always remove the margins."""
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


def test_crops_of_one_image_differ_and_are_seeded(tmp_path):
    draw(tmp_path / "a.png", 100)
    randoms = [[np.random.default_rng(seed) for seed in (0, 1, 0)] for _ in range(2)]
    first, again = (load_crops(tmp_path / "a.png", 8, group) for group in randoms)
    assert first.shape == (3, 3, 8, 8)
    assert torch.equal(first, again)
    assert torch.equal(first[0], first[2])
    assert not torch.equal(first[0], first[1])


def test_load_image_keeps_the_centre(tmp_path):
    wide = np.zeros((10, 30, 3), dtype=np.uint8)
    wide[:, 10:20] = 200
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert bool((load_image(tmp_path / "wide.png", 10) == 200).all())
    Image.new("L", (8, 8), 7).save(tmp_path / "grey.png")
    assert bool((load_image(tmp_path / "grey.png", 4) == 7).all())
