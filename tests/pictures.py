"""Small images for tests, and the content of a picture: axes, grids and text are grey, data are coloured."""

import zlib

import numpy as np
from PIL import Image

PIXELS = 12  # minimum number of pixels of a colour; fewer may be a blend of two adjacent colours
STRONG = 60  # minimum difference between the channels of a colour that is not a grey


def colours(path):
    """Return the number of colours in a picture that are not greys."""
    with Image.open(path) as image:
        found, counts = np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0, return_counts=True)
    return int(((np.ptp(found.astype(int), axis=1) >= STRONG) & (counts >= PIXELS)).sum())


def draw(path, colour, size=(20, 16)):
    """Write an image of one colour with noise that depends on its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(zlib.crc32(path.name.encode())).integers(0, 40, (size[1], size[0], 3))
    Image.fromarray((noise + colour).astype(np.uint8)).save(path)
