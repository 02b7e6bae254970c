"""New rows are read like the training rows."""

import numpy as np
import pytest
import torch
from PIL import Image

from frames import FRAME, WRITERS
from m3g.cli import main
from m3g.data.images.augment import as_float, normalize
from m3g.data.images.reading import load_image
from m3g.data.tables.new_objects import from_cells, from_pixels


def test_new_rows_are_read_in_the_same_way(tmp_path):
    FRAME.to_csv(tmp_path / "plain.csv", index=False)
    quick = ["--loop.epochs", "1", "--heads.hidden", "8", "--loop.evaluate_every", "0"]
    assert main(["train", *quick, "--table", str(tmp_path / "plain.csv"), "--out", str(tmp_path / "run")]) == 0
    for name, write in WRITERS.items():
        write(FRAME[:3], tmp_path / name)
        words = ["embed", str(tmp_path / "run"), "--out", str(tmp_path / f"{name}.npz"), "--table"]
        assert main([*words, str(tmp_path / name)]) == 0
    embeddings = [np.load(tmp_path / f"{name}.npz")["embeddings"] for name in WRITERS]
    for other in embeddings[1:]:
        np.testing.assert_allclose(other, embeddings[0], atol=1e-6)


@pytest.mark.parametrize("shape", [(12, 20, 3), (22, 12, 3)])
def test_pixels_are_cropped_like_files(tmp_path, shape):
    pixels = np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    expected = normalize(as_float(load_image(tmp_path / "x.png", 12)))
    assert torch.equal(from_pixels(torch.from_numpy(pixels)[None], 12, {"kind": "image"})[0], expected)


def test_columns_of_different_lengths_are_rejected():
    recipe = {"kind": "table", "columns": ["a", "b"], "layout": [("numbers", "a", 0.0, 1.0, False)]}
    for values, got in (({"a": [1.0, 2.0], "b": [1.0]}, "{'a': 2, 'b': 1}"), ({}, "none")):
        with pytest.raises(ValueError, match=f"'t' must have columns of the same length, got {got}"):
            from_cells("t", recipe, values)


def test_integer_images_of_any_type_have_values_from_0_to_255():
    pixels = torch.arange(2 * 12 * 12 * 3).remainder(256).view(2, 12, 12, 3)
    expected = from_pixels(pixels.to(torch.uint8), 12, {"kind": "image"})
    assert torch.equal(from_pixels(pixels, 12, {"kind": "image"}), expected)
    with pytest.raises(ValueError, match="images must have integer values from 0 to 255, got 1 to 256"):
        from_pixels(pixels + 1, 12, {"kind": "image"})


def test_a_list_for_several_columns_is_rejected():
    layout = [("numbers", column, 0.0, 1.0, False) for column in "ab"]
    recipe = {"kind": "table", "columns": ["a", "b"], "layout": layout}
    with pytest.raises(ValueError, match="view 't' must be a mapping from its columns a, b, got a list"):
        from_cells("t", recipe, [1.0, 2.0])
    assert from_cells("t", recipe, [None])[1].tolist() == [False]
