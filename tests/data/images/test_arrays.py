"""Images in memory: k augmentations of an image, and splits by group."""

import numpy as np
import pytest
import torch

from m3g.data import Arrays, ImageArrays
from m3g.data.images.arrays import augmented


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


def test_a_changed_file_is_read_again(tmp_path):
    for value in (0, 255):
        np.savez(tmp_path / "images.npz", images=np.full((10, 8, 8, 1), value, dtype=np.uint8))
        (view, _), _, _ = ImageArrays(tmp_path / "images.npz").arrays("test")
        assert (view == (1 if value else -1)).all()


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


def test_invalid_files_are_rejected(tmp_path):
    file = tmp_path / "images.npz"
    file.write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"path must be an \.npz file that can be read, got .*not an \.npz archive"):
        ImageArrays(file)
    np.savez(file, images=np.zeros((4, 8, 8)))
    with pytest.raises(ValueError, match=r"got float64 \(4, 8, 8\)"):
        ImageArrays(file)
    np.savez(file, images=np.zeros((0, 8, 8, 3), np.uint8), label=np.zeros(0, int))
    with pytest.raises(ValueError, match="labels must have at least one row"):
        ImageArrays(file)
