"""Small images for tests, and the content of a picture: axes, grids and text are grey, data are coloured."""

import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from m3g.evaluation import map, plots

PIXELS = 12  # minimum number of pixels of a colour; fewer may be a blend of two adjacent colours
STRONG = 60  # minimum difference between the channels of a colour that is not a grey


def colours(path):
    """Return the number of colours in a picture that are not greys."""
    with Image.open(path) as image:
        levels, counts = np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0, return_counts=True)
    return int(((np.ptp(levels.astype(int), axis=1) >= STRONG) & (counts >= PIXELS)).sum())


def draw(path, colour, size=(20, 16)):
    """Write an image of one colour with noise that depends on its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(zlib.crc32(path.name.encode())).integers(0, 40, (size[1], size[0], 3))
    Image.fromarray((noise + colour).astype(np.uint8)).save(path)


class Blank:
    """Replacement for a figure: the methods that `plots.save` calls, and a single pixel."""

    def findobj(self, kind):
        return []

    def savefig(self, file, *, format):
        Image.new("RGB", (1, 1)).save(file, format)


rendering = False  # plots of runs, see `save`
_save = plots.save


def save(figure, path):
    """Write a picture; the plots of a run are blank unless the test uses the fixture `rendered`.

    Figures are created in any case, but rendering those of a run takes longer than the training of a small run.
    """
    return _save(figure if rendering or Path(path).parent.name != "plots" else Blank(), path)


def leave_plots_of_runs_blank():
    plots.save = map.save = save
