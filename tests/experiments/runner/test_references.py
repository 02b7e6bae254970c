"""References: the inputs as features, and the same network trained on labels."""

import numpy as np
import pytest
import torch

from m3g.evaluation import quick_probe
from m3g.experiments.domainnet.runs import laptop_config
from m3g.experiments.engine.spec import Request, RunSpec, place_files
from m3g.experiments.runner.references import Inputs, fit_labels, reference_runs, reference_table
from m3g.training import build_data
from m3g.training.settings.config import Config


@pytest.fixture
def config(tmp_path):
    """Images whose class is the sign of a product of two pixels, which a linear probe cannot detect."""
    random = np.random.default_rng(0)
    images = {}
    for domain in ("art_painting", "cartoon", "photo", "sketch"):
        signs = random.integers(0, 2, (400, 2))
        noise = random.integers(100, 150, (400, 4, 4, 8))
        noise[:, 0, 0, :2] = 255 * signs
        images |= {domain: noise.astype(np.uint8), f"{domain}_label": np.array(["a", "b"])[signs[:, 0] ^ signs[:, 1]]}
    np.savez(tmp_path / "pacs_edges.npz", **images)
    settings = laptop_config("pacs", "m3g", "sketch", seed=0, steps=60)
    settings["optim"]["learning_rate"] = 3e-3
    settings["data_options"]["batch_size"] = 2
    settings["data_options"]["points_per_epoch"] = 120
    return Config.from_dict(place_files(settings, tmp_path))


def accuracy(net, data):
    with torch.no_grad():
        parts = []
        for domain, split in (("photo", "train"), ("sketch", "train")):
            rows = data.domain_rows(domain, split)
            parts.append((net.features([rows.views[0]])[0], rows.label))
    return quick_probe(*parts[0], *parts[1])


def test_supervised_training_learns_what_a_linear_probe_cannot(config):
    data = build_data(config)
    assert accuracy(Inputs(), data) < 0.65
    assert accuracy(fit_labels(config, data, joined=False), data) > 0.8


def test_the_same_seed_gives_the_same_network(config):
    one, two = (fit_labels(config, build_data(config), joined=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters()))


def test_features_of_signals_are_invariant_to_phase():
    time = torch.arange(64) / 64
    waves = torch.stack([torch.sin(2 * torch.pi * (5 * time + phase)) for phase in (0.0, 0.3)])
    features = Inputs(signals=True).features([waves])[0]
    assert features.argmax(1).tolist() == [5, 5]
    assert torch.allclose(features[0, 5], features[1, 5], atol=1e-3)


def test_supervised_runs_choose_their_rate_with_the_seed_of_the_grids():
    def make(name, seed):
        return [RunSpec("e", {"config": {"seed": seed, "optim": {}}, "reference": name}, {"arm": name, "seed": seed})]

    runs = reference_runs(make, Request(seeds=2), tuning_seed=100, rates=(1e-3, 1e-2))
    grid, chosen, raw = runs[:2], runs[2:4], runs[4:]
    assert [run.settings["config"]["optim"] for run in grid] == [{"learning_rate": 1e-3}, {"learning_rate": 1e-2}]
    assert all(run.needs == [one.id for one in grid] for run in chosen)
    assert [run.labels["arm"] for run in raw] == ["raw", "raw"]
    assert reference_runs(make, Request(seeds=2, methods=["m3g"]), tuning_seed=100, rates=(1e-3,)) == []


def test_a_table_without_references_is_empty():
    assert reference_table("accuracy %", {"mean": {}}) == ""
