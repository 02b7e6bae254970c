"""Emoji in both layouts."""

import numpy as np
import pytest
from PIL import Image

from m3g.experiments.sources import emoji
from m3g.experiments.sources.files import MissingData


def test_new_emoji_are_not_used_in_training(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (5, 40, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "emoji_5vendors_32.npz", X=images, domains=np.array(emoji.VENDORS))
    emoji.prepare_emoji(tmp_path, tmp_path)
    with np.load(tmp_path / emoji.TRAIN) as train, np.load(tmp_path / emoji.NEW) as new:
        assert len(train["noto"]) == 32
        assert sorted([*train["noto_label"], *new["noto_label"]]) == list(range(40))


def test_transparent_images_are_composited_on_white(tmp_path):
    for vendor in emoji.VENDORS:
        (tmp_path / "emoji" / vendor).mkdir(parents=True)
        for name in ("cat.png", "dog.png"):
            Image.new("RGBA", (64, 64), (255, 0, 0, 0)).save(tmp_path / "emoji" / vendor / name)
    Image.new("RGBA", (64, 64), "black").save(tmp_path / "emoji" / "noto" / "only-here.png")
    images = emoji.read_emoji(tmp_path)
    assert set(images) == set(emoji.VENDORS)
    assert images["noto"].shape == (2, 32, 32, 3)
    assert images["noto"].min() == 255
    with pytest.raises(MissingData, match=r"emoji/VENDOR/NAME\.png"):
        emoji.read_emoji(tmp_path / "emoji")
