"""Configurations of runs, runs with the complete training of `m3g train`, and the paper's probe of images.

The complete training is used at the paper's scale and by `default-set`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from m3g.data import Domains, ImageFolders, ViewsData
from m3g.data.batch import Batch
from m3g.data.images.crops import RandomCrops
from m3g.data.images.folders import ImageData
from m3g.evaluation import augmented_probe
from m3g.experiments.engine.spec import OnlyTrained, Settings
from m3g.nets import MultiViewNet
from m3g.training import Run, build_data, load, train
from m3g.training.loop.processes import is_first
from m3g.training.settings.config import MIN_EPOCHS, Config
from m3g.training.settings.plain_yaml import read_yaml

ALGORITHM_2 = "m3g, Algorithm 2"
PROBE_EPOCHS, PROBE_BATCH = 100, 1024


def shipped(name: str) -> Settings:
    """Return the settings of a configuration shipped with the package."""
    with resources.as_file(resources.files("m3g") / "configs" / f"{name}.yaml") as file:
        content = read_yaml(file)
    assert isinstance(content, dict)
    return content


def paper_arms(methods: Sequence[str], *, epsilon: float) -> dict[str, tuple[str, Settings]]:
    """Return the loss and its options by arm.

    M3G uses the paper's epsilon and has two arms, because the paper's definition and its Algorithm 2 differ in the
    scale of the cost. In losses whose name ends with `-ave`, averages are not renormalised.
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
    """Return the differences of a configuration from the defaults; the id of a run is derived from them."""
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
    """Return the network and the data of a run, after training it, resuming it, or loading it if it is finished."""
    run = Run(folder)
    if not run.weights.is_file():
        if is_first() and run.path.exists() and not run.checkpoint.is_file():
            shutil.rmtree(run.path)  # killed before its first checkpoint
        train(config, folder, resume=run.checkpoint.is_file())
    if int(os.environ.get("RANK", "0")) > 0:
        raise OnlyTrained  # under torchrun only the first process evaluates
    return load(folder, scaled=scaled), build_data(config)


def domain_metrics(config: Config, folder: Path) -> dict[str, float | dict[str, float]]:
    """Return accuracies of the paper's linear probe on the unseen domain, trained on all seen domains and on each one.

    The number of test images is also returned.
    """
    net, data = trained(config, folder)
    assert isinstance(data, Domains)
    seen = {name: data.members[name, "train"].tolist() for name in data.view_names}
    probe = PaperProbe(net, data, data.members[data.held_out[0], "test"].tolist(), config)
    return {
        "test": probe.accuracy([i for files in seen.values() for i in files]),
        "single": {name: probe.accuracy(files) for name, files in seen.items()},
        "test_images": len(probe.test_labels),
    }


def image_metrics(config: Config, folder: Path) -> dict[str, float]:
    """Return the accuracy of the paper's linear probe on the validation images, and the number of these images."""
    net, data = trained(config, folder)
    assert isinstance(data, ImageFolders)
    probe = PaperProbe(net, data, data.files_of("test"), config)
    return {"test": probe.accuracy(data.files_of("train")), "test_images": len(probe.test_labels)}


class PaperProbe:
    """Linear probe of the paper: trained on features of random crops and flips, tested on plain images.

    The features are computed by one process, on an accelerator if there is one and `loop.accelerator` is not `cpu`.
    """

    def __init__(self, net: MultiViewNet, data: ImageData, test_files: Sequence[int], config: Config):
        self.device = torch.device("cpu")
        if config.loop.accelerator != "cpu" and torch.accelerator.is_available():
            self.device = torch.accelerator.current_accelerator() or self.device
        self.net, self.data, self.seed = net.to(self.device).eval(), data, config.seed
        half = config.loop.precision == "bf16-mixed"
        self.precision = torch.autocast(self.device.type, torch.bfloat16, enabled=half)
        self.test, self.test_labels = self._plain(test_files)

    def accuracy(self, train_files: Sequence[int]) -> float:
        """Return the accuracy on the test images of a probe trained on `train_files`."""
        train, labels = self._plain(train_files)
        loader, sampler = RandomCrops(self.data, train_files).loader(batch_size=min(PROBE_BATCH, len(train_files)))

        def batches(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
            sampler.set_epoch(epoch)
            return ((self._features(batch), batch["index"]) for batch in loader)

        result = augmented_probe(
            batches, train, labels, self.test, self.test_labels,
            steps=len(loader), epochs=PROBE_EPOCHS, seed=self.seed,
        )  # fmt: skip
        return result.accuracy

    def _plain(self, files: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the features and classes of images without augmentation."""
        assert self.data.labels is not None
        features = [self._features(batch) for batch in self.data.batches(self.data.plain_images(files))]
        return torch.cat(features), self.data.labels[torch.tensor(files)]

    @torch.no_grad()
    def _features(self, batch: Batch) -> Tensor:
        with self.precision:
            return self.net.features([batch["views"][0].to(self.device)])[0].float().cpu()
