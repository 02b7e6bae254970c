"""Captions in four languages as three views."""

import gzip

import numpy as np

from m3g.experiments.synergy import captions as module


def test_the_third_view_is_the_selected_caption_in_another_language(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PICTURES", 200)
    monkeypatch.setattr(module, "TEXT_FEATURES", 4)
    (tmp_path / "multi30k").mkdir()
    words = np.random.default_rng(0).integers(0, 12, (200, 5))
    for language in module.LANGUAGES:
        with gzip.open(tmp_path / "multi30k" / f"train.{language}.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(" ".join(f"{language}{word}" for word in row) for row in words))
    arrays = module.captions(tmp_path)
    assert {name: array.shape for name, array in arrays.items()} == {
        "captions": (200, 16),
        "language": (200, 512),
        "caption": (200, 16),
        "others": (200, 3, 16),
        "label": (200,),
        "group": (200,),
    }
    blocks = arrays["caption"].reshape(200, 4, 4)  # one block per language, of which one is used
    used = (blocks != 0).any(-1)
    assert (used.sum(1) == 1).all()
    assert (used.argmax(1) != arrays["label"]).all()
    assert np.array_equal((arrays["others"].reshape(200, 3, 4, 4) != 0).any(-1), np.repeat(used[:, None], 3, axis=1))
