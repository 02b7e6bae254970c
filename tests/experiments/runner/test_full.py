"""Runs at the paper's scale."""

import pytest

from m3g.data import Domains, ImageFolders
from m3g.experiments.engine.registry import find
from m3g.experiments.engine.spec import OnlyTrained, Request
from m3g.experiments.runner import full
from m3g.training.settings.config import Config
from pictures import draw

TINY = {"encoder": "conv", "encoder_options": {"channels": [8, 8], "pool": 2}, "heads": {"embedding_size": 8}}


def test_paper_arms_have_the_papers_options():
    specs = find("imagenet").specs(Request(scale="paper", seeds=1))
    by_arm = {spec.labels["arm"]: spec.settings["config"] for spec in specs}
    assert by_arm["m3g"]["loss_options"] == {"epsilon": 0.2}
    assert by_arm["m3g, Algorithm 2"]["loss_options"] == {"epsilon": 0.2, "cost": "cv-algorithm2"}
    assert by_arm["infonce-ave"]["loss_options"] == {"renormalize": False}
    assert by_arm["byol-ave"]["loss_options"] == {"renormalize": False}
    assert by_arm["m3g"]["heads"]["weight_std"] == 0.02
    rates = {
        name: find(name).specs(Request(scale="paper", seeds=1))[0].settings["config"]["optim"]["reference_batch"]
        for name in ("imagenet", "domainnet")
    }
    assert rates == {"imagenet": 2048, "domainnet": 2048}


def test_only_the_first_process_removes_a_run_without_checkpoint(tmp_path, monkeypatch):
    """Two processes that remove the same folder at once would fail."""
    folder = tmp_path / "run"
    folder.mkdir()
    existed = []
    monkeypatch.setattr(full, "train", lambda config, run, resume: existed.append((run.exists(), resume)))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "7")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(OnlyTrained):
        full.trained(Config(), folder)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ValueError, match="must be"):  # the stand-in wrote no network
        full.trained(Config(), folder)
    assert existed == [(True, False), (False, False)]


@pytest.fixture
def short_probe(monkeypatch):
    """Shorten the probe, and count the epochs of its crops."""
    epochs = []
    monkeypatch.setattr(full, "PROBE_EPOCHS", 4)
    loader = full.RandomCrops.loader

    def counted(crops, *, batch_size):
        batches, sampler = loader(crops, batch_size=batch_size)
        set_epoch = sampler.set_epoch
        sampler.set_epoch = lambda epoch: (epochs.append((len(crops), epoch)), set_epoch(epoch))
        return batches, sampler

    monkeypatch.setattr(full.RandomCrops, "loader", counted)
    return epochs


def one_epoch(data, options):
    loop = {"epochs": 1, "accelerator": "cpu", "evaluate_every": 0, "patience": 0}
    return Config.from_dict({**TINY, "data": data, "data_options": options, "shared": True, "loop": loop})


def test_the_probe_of_images_trains_on_crops_and_tests_plain_images(tmp_path, short_probe):
    for split, count in (("train", 12), ("val", 5)):
        for c, name in enumerate(["dark", "bright"]):
            for i in range(count):
                draw(tmp_path / "images" / split / name / f"{i}.png", 150 * c)
    options = {"root": str(tmp_path / "images"), "k": 2, "size": 16, "batch_size": 6, "evaluation_views": "plain"}
    config = one_epoch("images", options)
    assert full.build_data(config).__class__ is ImageFolders
    metrics = full.image_metrics(config, tmp_path / "run")
    assert metrics == {"test": 1.0, "test_images": 10}
    assert short_probe == [(24, epoch) for epoch in range(4)]


def test_the_probes_of_domains_are_joint_and_single(tmp_path, short_probe):
    for l, domain in enumerate(["clipart", "real", "sketch"]):
        for c in range(3):
            for i in range(8):
                draw(tmp_path / "images" / domain / f"class{c}" / f"{i}.png", [20 * l, 90 * c, 0])
    options = {"root": str(tmp_path / "images"), "held_out": ["sketch"], "size": 16, "batch_size": 3, "val": 0.0}
    config = one_epoch("domains", options)
    assert full.build_data(config).__class__ is Domains
    metrics = full.domain_metrics(config, tmp_path / "run")
    assert metrics.keys() == {"test", "single", "test_images"}
    assert metrics["single"].keys() == {"clipart", "real"}
    assert all(0.3 < score <= 1 for score in (metrics["test"], *metrics["single"].values()))
    assert [rows for rows, epoch in short_probe if epoch == 0] == [38, 19, 19]
