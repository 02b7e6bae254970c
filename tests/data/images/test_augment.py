"""The augmentation stacks of the paper."""

import numpy as np
import pytest
import torch

from m3g.data.images.augment import IMAGENET_STACKS, STACKS, Augmentation, plain, random_box


@pytest.mark.parametrize("stack", STACKS)
def test_stacks_are_seeded_and_do_not_change_the_random_state(stack):
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


@pytest.mark.parametrize("size", [(640, 480), (10, 400), (400, 10), (1, 1)])
def test_boxes_have_the_area_and_ratio_of_the_paper(size):
    random = np.random.default_rng(0)
    boxes = np.array([random_box(*size, random) for _ in range(300)])
    widths, heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert (boxes >= 0).all()
    assert (boxes[:, 2] <= size[0] + 1e-9).all()
    assert (boxes[:, 3] <= size[1] + 1e-9).all()
    assert ((widths / heights > 0.749) & (widths / heights < 1.334)).all()
    if size == (640, 480):
        area = widths * heights / (640 * 480)
        assert area.min() < 0.15
        assert area.max() > 0.8
        assert area.min() >= 0.08
