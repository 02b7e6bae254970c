"""Images of several domains in memory."""

import numpy as np
import pytest
import torch

from m3g.data import DomainArrays
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


def test_images_in_memory_have_splits_and_domains(domains):
    data = DomainArrays(domains, held_out="c", batch_size=6, val=0.2, test=0.2)
    assert data.view_shapes == [(3, 9, 9)] * 2
    for name, number in (("a", 30), ("b", 48), ("c", 24)):
        assert sum(len(data.domain_rows(name, split)) for split in ("train", "val", "test")) == number
    batch = next(iter(data.domain_loader("c", "test")))
    assert len(batch["views"]) == 1
    with pytest.raises(ValueError, match="held_out must be some of a, b, c, got d"):
        DomainArrays(domains, held_out="d")
    with pytest.raises(ValueError, match="domains must include at least 2 that are not held out"):
        DomainArrays(domains, held_out=["a", "b"])
    with pytest.raises(ValueError, match="domains must be distinct, got a, a"):
        DomainArrays(domains, domains=["a", "a"])
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
