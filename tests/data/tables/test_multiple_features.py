"""The data set that is part of the package."""

import pytest
import torch

from m3g.data import MultipleFeatures


def test_built_in_set_is_complete():
    data = MultipleFeatures()
    assert data.k == 6
    assert data.view_shapes == [(76,), (216,), (64,), (240,), (47,), (6,)]
    assert (data.num_classes, data.class_names) == (10, [str(digit) for digit in range(10)])
    sizes = [data.num_rows(split) for split in ("train", "val", "test")]
    assert sizes == [1400, 200, 400]
    views, mask, labels = data.arrays("test")
    assert mask is None
    assert torch.bincount(labels).tolist() == [40] * 10
    assert all(len(view) == 400 and view.dtype == torch.float32 for view in views)
    train, _, _ = data.arrays("train")
    for view in train:
        torch.testing.assert_close(view.mean(0), torch.zeros(view.shape[1]), atol=1e-4, rtol=0)
        torch.testing.assert_close(view.std(0, correction=0), torch.ones(view.shape[1]), atol=1e-3, rtol=0)


def test_some_of_the_built_in_views_can_be_selected():
    with pytest.raises(ValueError, match="views must be two or more of fourier"):
        MultipleFeatures(views=["fourier"])
    with pytest.raises(ValueError, match="got \\['fourier', 'colour'\\]"):
        MultipleFeatures(views=["fourier", "colour"])
    with pytest.raises(ValueError, match="each at most once, got \\['fourier', 'fourier'\\]"):
        MultipleFeatures(views=["fourier", "fourier"])
