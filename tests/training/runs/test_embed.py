"""Embeddings of the splits of a run."""

import pytest
import torch

from m3g.training import build_data, load
from m3g.training.runs.embed import embed, embed_run
from m3g.training.runs.folder import Run


def test_splits_together_are_all_rows(copy):
    run = Run(copy)
    whole = embed_run(run)
    parts = {split: embed_run(run, split) for split in ("train", "val", "test")}
    assert sum(part.present.shape[1] for part in parts.values()) == whole.present.shape[1] == 60
    assert sorted(whole.index.tolist()) == list(range(60))
    for split, part in parts.items():
        chosen = torch.tensor([name == split for name in whole.split])
        torch.testing.assert_close(whole.embeddings[:, chosen], part.embeddings)


def test_at_most_some_rows_are_embedded_and_the_mode_is_restored(copy):
    run = Run(copy)
    data, net = build_data(run.open(), run), load(run, scaled=True).train()
    points = embed(net, data, "train", most=5)
    assert points.embeddings.shape[1] == 5
    assert net.training
    expected = embed(net, data, "train").take(torch.arange(5) * 42 // 5)
    torch.testing.assert_close(points.embeddings, expected.embeddings)


def test_a_split_without_rows_is_an_error(copy):
    with pytest.raises(ValueError, match="split must be one of 'all', 'test', 'train', 'val', got 'other'"):
        embed_run(copy, "other")
