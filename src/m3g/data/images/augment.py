"""Augmentation stacks of the paper, applied with kornia to whole batches of images on their device."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from m3g import _checks

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet

# Per stack: colour jitter (brightness, contrast, saturation, hue), probability of blur, probability of solarisation.
STACKS: dict[str, tuple[tuple[float, float, float, float], float, float]] = {
    "byol-global1": ((0.4, 0.4, 0.2, 0.1), 1.0, 0.0),
    "byol-global2": ((0.4, 0.4, 0.2, 0.1), 0.1, 0.2),
    "simclr": ((0.8, 0.8, 0.8, 0.2), 0.5, 0.0),
}
CROP_SCALE, CROP_RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
IMAGENET_STACKS = ("byol-global1", "byol-global2", "simclr", "byol-global1")


class Augmentation(nn.Module):
    """Augmentation stack of the paper: crop, flip, colour, greyscale, blur, solarise, normalise.

    The blur kernel is 23 pixels wide at size 224 and scales with the size; its sigma is drawn between 0.1 and 2.

    Args:
        stack: a key of `STACKS`.
        size: side of the square output.
        scale: range of the fraction of the area that a crop covers; None if the images are already cropped
            (`random_box`).

    Example:
        >>> images = torch.rand(4, 3, 40, 40)
        >>> Augmentation("simclr", size=32)(images, seed=(0, 1)).shape
        torch.Size([4, 3, 32, 32])
    """

    def __init__(self, stack: str, *, size: int = 224, scale: tuple[float, float] | None = CROP_SCALE):
        super().__init__()
        _checks.one_of("stack", stack, STACKS)
        _checks.positive_int("size", size)
        augment = _checks.extra("kornia.augmentation", "train")
        (brightness, contrast, saturation, hue), blur, solarize = STACKS[stack]
        kernel = max(3, 2 * round(size * 23 / 224 / 2 - 0.5) + 1)
        steps = [
            augment.RandomHorizontalFlip(p=0.5),
            augment.ColorJitter(brightness, contrast, saturation, hue, p=0.8),
            augment.RandomGrayscale(p=0.2),
            augment.RandomGaussianBlur((kernel, kernel), (0.1, 2.0), p=blur),
        ]
        if scale is not None:
            crop = augment.RandomResizedCrop((size, size), scale=scale, resample="BICUBIC", cropping_mode="slice")
            steps = [crop, Clamp(), *steps]
        if solarize:
            steps.append(augment.RandomSolarize(thresholds=(0.5, 0.5), additions=(0.0, 0.0), p=solarize))
        self.steps = nn.Sequential(*steps)

    @torch.no_grad()
    def forward(self, images: Tensor, *, seed: Sequence[int]) -> Tensor:
        """Map images (n, 3, H, W) in [0, 1], or uint8, to normalised (n, 3, size, size); deterministic for a seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(np.random.SeedSequence(list(seed)).generate_state(1, np.uint64)[0]) >> 1)
            return normalize(self.steps(as_float(images)))


def random_box(width: int, height: int, random: np.random.Generator) -> tuple[float, float, float, float]:
    """Return the left, upper, right and lower edges of a random crop, as in torchvision's RandomResizedCrop.

    A draw covers 8 to 100 % of the area of the image and has an aspect ratio of 3/4 to 4/3. If none of ten draws fits
    into the image, the crop is the largest centred one with an allowed aspect ratio.

    Example:
        >>> left, upper, right, lower = random_box(640, 480, np.random.default_rng(0))
        >>> 0 <= left < right <= 640, 0 <= upper < lower <= 480
        (True, True)
    """
    for _ in range(10):
        area = width * height * random.uniform(*CROP_SCALE)
        ratio = math.exp(random.uniform(math.log(CROP_RATIO[0]), math.log(CROP_RATIO[1])))
        across, down = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if across <= width and down <= height:
            left, upper = random.uniform(0, width - across), random.uniform(0, height - down)
            return left, upper, left + across, upper + down
    across, down = min(width, height * CROP_RATIO[1]), min(height, width / CROP_RATIO[0])
    left, upper = (width - across) / 2, (height - down) / 2
    return left, upper, left + across, upper + down


class Clamp(nn.Module):
    """Clamp to [0, 1], because bicubic interpolation overshoots."""

    def forward(self, images: Tensor) -> Tensor:
        return images.clamp(0, 1)


def as_float(images: Tensor) -> Tensor:
    """Convert uint8 images to floats in [0, 1]; other images are returned unchanged."""
    return images.float() / 255 if images.dtype == torch.uint8 else images


def normalize(images: Tensor, mean: Sequence[float] = MEAN, std: Sequence[float] = STD) -> Tensor:
    """Subtract the mean of each channel from images (..., c, h, w), and divide by its standard deviation."""
    centre, scale = (torch.tensor(part, device=images.device).view(-1, 1, 1) for part in (mean, std))
    return (images - centre) / scale


def plain(images: Tensor, *, size: int) -> Tensor:
    """Preprocess test images without augmentation: resize, centre-crop to 224/256 of the side, and normalise."""
    images = as_float(images)
    side = round(size * 256 / 224)
    if images.shape[-1] != side or images.shape[-2] != side:
        images = interpolate(images, (side, side), mode="bicubic", antialias=True, align_corners=False)
    margin = (side - size) // 2
    return normalize(images[..., margin : margin + size, margin : margin + size].clamp(0, 1))
