"""Runs that use the complete training of `m3g train`, mainly at the paper's scale, and the paper's probes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import torch

from m3g.data import Domains, ViewsData
from m3g.data.splits import Split
from m3g.evaluation import linear_probe
from m3g.experiments.engine.spec import OnlyTrained, Settings
from m3g.nets import MultiViewNet
from m3g.training import Run, build_data, load, train
from m3g.training.loop.processes import is_first
from m3g.training.runs.embed import embed, embed_batches
from m3g.training.settings.config import MIN_EPOCHS, Config
from m3g.training.settings.plain_yaml import read_yaml

ALGORITHM_2 = "m3g, Algorithm 2"
SPLITS: tuple[Split, ...] = ("train", "test")


def shipped(name: str) -> Settings:
    """Return the settings of a configuration shipped with the package."""
    with resources.as_file(resources.files("m3g") / "configs" / f"{name}.yaml") as file:
        content = read_yaml(file)
    assert isinstance(content, dict)
    return content


def paper_arms(methods: Sequence[str], *, epsilon: float) -> dict[str, tuple[str, Settings]]:
    """Return, by arm, the loss and its options.

    M3G uses the paper's epsilon and has two arms, because the paper's definition and its Algorithm 2 differ in the
    scale of the cost. In `-ave` losses, averages are not renormalised.
    """
    arms: dict[str, tuple[str, Settings]] = {}
    for method in methods:
        arms[method] = (method, {"renormalize": False} if method.endswith("-ave") else {})
    arms["m3g"] = ("m3g", {"epsilon": epsilon})
    arms[ALGORITHM_2] = ("m3g", {"epsilon": epsilon, "cost": "cv-algorithm2"})
    return arms


def config_of(settings: Settings) -> Config:
    """Return the full configuration of a run from its differences from the defaults.

    Encoders of numeric views and the number of epochs default to the values used for the stored results. Early
    stopping is disabled unless `patience` is set.
    """
    content = dict(settings["config"])
    if content.get("data", "multiple-features") in ("arrays", "multiple-features"):
        content.setdefault("encoder", "mlp")
    content["loop"] = {"epochs": MIN_EPOCHS, "patience": 0, **content.get("loop", {})}
    return Config.from_dict(content)


def difference(config: Config) -> Settings:
    """Return the differences of a configuration from the defaults, from which the id of a run is derived."""
    content, default = config.to_dict(), Config().to_dict()
    differences: Settings = {}
    for name, value in content.items():
        if value == default[name]:
            continue
        default_value = default[name]
        if isinstance(value, dict) and isinstance(default_value, dict) and not name.endswith("_options"):
            value = {key: entry for key, entry in value.items() if entry != default_value[key]}
        differences[name] = value
    return differences


def trained(config: Config, folder: Path, *, scaled: bool = False) -> tuple[MultiViewNet, ViewsData]:
    """Train with a configuration, or resume an interrupted run; return the network and the data."""
    run = Run(folder)
    if not run.weights.is_file():
        if is_first() and run.path.exists() and not run.checkpoint.is_file():
            shutil.rmtree(run.path)  # killed before its first checkpoint
        train(config, folder, resume=run.checkpoint.is_file())
    if int(os.environ.get("RANK", "0")) > 0:
        raise OnlyTrained  # under torchrun only the first process evaluates
    return load(folder, scaled=scaled), build_data(config)


def domain_metrics(config: Config, folder: Path) -> dict[str, float | dict[str, float]]:
    """Return accuracies of the paper's linear probe on the unseen domain, trained on all seen domains and on each."""
    net, data = trained(config, folder)
    assert isinstance(data, Domains)
    rows = {}
    for domain, split in [(name, "train") for name in data.view_names] + [(name, "test") for name in data.held_out]:
        points = embed_batches(net, data.domain_loader(domain, split))  # type: ignore[arg-type]
        assert points.features is not None
        assert points.labels is not None
        rows[domain] = (points.features[0], points.labels)
    unseen = rows[data.held_out[0]]
    features, labels = (torch.cat(part) for part in zip(*(rows[name] for name in data.view_names)))
    return {
        "test": linear_probe(features, labels, *unseen).accuracy,
        "single": {name: linear_probe(*rows[name], *unseen).accuracy for name in data.view_names},
        "test_images": len(unseen[1]),
    }


def image_metrics(config: Config, folder: Path) -> dict[str, float]:
    """Return the accuracy of the paper's linear probe on the unaugmented images of the validation folder."""
    net, data = trained(config, folder)
    rows = []
    for split in SPLITS:
        points = embed(net, data, split)
        assert points.features is not None
        assert points.labels is not None
        rows += [points.features[0], points.labels]
    return {"test": linear_probe(*rows).accuracy, "test_images": len(rows[-1])}
