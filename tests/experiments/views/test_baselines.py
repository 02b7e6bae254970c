"""Baselines without a k-view loss."""

import torch

from m3g.experiments.runner.full import config_of
from m3g.experiments.views.baselines import baseline, principal


def test_principal_components_are_those_of_the_training_rows():
    random = torch.Generator().manual_seed(0)
    train = torch.randn(200, 3, generator=random) * torch.tensor([1.0, 5.0, 0.1]) + 7
    projected, other = principal(train, [train, train[:4] + 1], size=2)
    assert projected.shape == (200, 2)
    torch.testing.assert_close(projected.mean(0), torch.zeros(2), atol=1e-4, rtol=0)
    assert 4 < projected[:, 0].std() < 6
    assert 0.8 < projected[:, 1].std() < 1.2
    torch.testing.assert_close(other - projected[:4], (other - projected[:4])[:1].expand(4, 2), atol=1e-4, rtol=0)


def test_every_baseline_has_all_rows_and_its_number_of_columns():
    options = {"heads": {"embedding_size": 8, "hidden": None}, "loop": {"max_steps": 2, "accelerator": "cpu"}}
    config = config_of({"config": options})
    widths = {}
    for name in ("raw", "pca", "linear-mcca", "supervised"):
        data, parts = baseline(name, config)
        assert [len(parts[split][0]) for split in ("train", "val", "test")] == [
            data.num_rows(split) for split in ("train", "val", "test")
        ]
        widths[name] = [view.shape[1] for view in parts["test"]]
    sizes = [int(torch.tensor(shape).prod()) for shape in data.view_shapes]
    assert widths["raw"] == sizes
    assert widths["pca"] == [min(32, size) for size in sizes]
    assert widths["linear-mcca"] == [32] * data.k
    assert widths["supervised"] == [8] * data.k
