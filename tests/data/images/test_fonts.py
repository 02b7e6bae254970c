"""Fonts as images, and `m3g prepare fonts`, with the fonts of matplotlib."""

import shutil
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from m3g.cli import main
from m3g.data.images.fonts import CHARACTERS, MARGIN, render_face, render_fonts

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


@pytest.fixture
def styles(tmp_path):
    for style, files in {"sans_serif": ("DejaVuSans", "cmss10"), "monospace": ("DejaVuSansMono",)}.items():
        (tmp_path / "styles" / style / "deeper").mkdir(parents=True)
        for file in files:
            shutil.copy(FONTS / f"{file}.ttf", tmp_path / "styles" / style / "deeper")
    return tmp_path / "styles"


def test_every_character_is_drawn_centred_and_inside():
    face = render_face(FONTS / "DejaVuSans.ttf")
    assert face.shape == (62, 28, 28)
    assert len({image.tobytes() for image in face}) == 62
    for image in face:
        rows, columns = np.nonzero(image > 127)
        assert len(rows)
        for places in (rows, columns):
            assert places.min() >= MARGIN - 1
            assert places.max() <= 28 - MARGIN
            assert abs(places.min() + places.max() - 27) <= 2
    tall = [np.ptp(np.nonzero(face[CHARACTERS.index(c)] > 127)[0]) for c in "xh"]
    assert tall[0] < tall[1]  # one scale for all characters of a face


def test_styles_are_the_subfolders(styles, tmp_path, capsys):
    assert main(["prepare", "fonts", str(styles), "--out", str(tmp_path / "sets")]) == 0
    assert "monospace 1, sans_serif 2" in capsys.readouterr().out
    with np.load(tmp_path / "sets" / "fonts.npz") as stored:
        assert {name: stored[name].shape for name in stored.files} == {
            "monospace": (1, 62, 28, 28),
            "sans_serif": (2, 62, 28, 28),
            "chars": (62,),
        }


def test_fonts_without_a_character_are_skipped(styles):
    assert render_face(FONTS / "DejaVuSerifDisplay.ttf") is None
    shutil.copy(FONTS / "DejaVuSerifDisplay.ttf", styles / "monospace")
    assert len(render_fonts(styles)["monospace"]) == 1


def test_damaged_fonts_are_named_or_skipped(styles):
    (styles / "monospace" / "broken.ttf").write_bytes(b"no font")
    with pytest.raises(ValueError, match=r"fonts must be readable, got .*broken.ttf"):
        render_fonts(styles)
    assert len(render_fonts(styles, skip=True)["monospace"]) == 1
    with pytest.raises(
        ValueError, match=r"at least two subfolders \(styles\) with complete .ttf or .otf fonts, got deeper"
    ):
        render_fonts(styles / "monospace")
