"""The page of search results: embedded files, escaped text."""

import wave

import pytest
from PIL import Image

from m3g.data.storage.moved import Folders
from m3g.report.search_page import cell_html, search_page

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def folders(tmp_path):
    inside = tmp_path / "data"
    inside.mkdir()
    for path in (inside / "red.png", tmp_path / "outside.png"):
        Image.new("RGB", (300, 200), (255, 0, 0)).save(path)
    (inside / "broken.png").write_bytes(b"\x89PNG")
    with wave.open(str(inside / "tone.wav"), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(100))
    return Folders(inside)


def test_images_and_sounds_are_embedded(folders):
    assert cell_html("red.png", "image", folders, outside=False).startswith('<img alt="" src="data:image/jpeg;base64,')
    sound = cell_html("tone.wav", "audio", folders, outside=False)
    assert sound.startswith('<audio controls src="data:audio/wav;base64,')
    assert sound.endswith("tone.wav")
    content = (folders.table / "red.png").read_bytes()
    for value in (content, {"bytes": content, "path": None}):
        assert cell_html(value, "image", folders, outside=False).startswith("<img")


@pytest.mark.parametrize("name", ["broken.png", "missing.png", "../outside.png"])
def test_only_the_path_of_other_files_is_shown(folders, name):
    assert cell_html(name, "image", folders, outside=False) == name


def test_files_outside_the_folder_are_read_if_allowed(folders):
    assert cell_html("../outside.png", "image", folders, outside=True).startswith("<img")


def test_text_is_escaped(folders):
    cell = cell_html(EVIL, "text", folders, outside=False)
    page = search_page(EVIL, [EVIL], {"query": [[cell]]})
    assert EVIL not in page
    assert page.count("&lt;script&gt;") == 4  # title, headline, column, cell
    assert "default-src 'none'" in page
