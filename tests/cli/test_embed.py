"""Options of `m3g embed`."""

import numpy as np
import torch

from fixtures import error_of
from m3g.cli import main
from m3g.evaluation import Embedded


def test_the_output_must_be_an_npz_file(copy, capsys):
    assert "--out must be a file name with the ending .npz, got 'a.txt'" in error_of(
        ["embed", copy, "--out", "a.txt"], capsys
    )


def test_embeddings_of_missing_views_are_zero(copy, monkeypatch):
    points = Embedded(torch.ones(2, 3, 4), mask=torch.tensor([[True, False, True], [True, True, True]]))
    monkeypatch.setattr("m3g.training.runs.embed.embed_run", lambda *args, **options: points)
    assert main(["embed", str(copy), "--out", "missing.npz"]) == 0
    with np.load("missing.npz") as content:
        assert (content["embeddings"] == content["mask"][..., None]).all()
        assert content["embeddings"].dtype == np.float32
