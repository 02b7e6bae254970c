"""Runs on k augmentations of images, for the experiments imagenet, epsilon, cost, branches and budget."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from m3g.data import ViewsData
from m3g.data.images.arrays import AugmentedRows
from m3g.data.splits import SPLITS, Split
from m3g.evaluation import Probe, effective_rank
from m3g.experiments.engine.spec import Labels, Prepare, Request, RunSpec, Settings, merged
from m3g.experiments.runner import full
from m3g.experiments.runner.references import Network, fit_or_reference
from m3g.experiments.sources.images import check_paper_folders, prepare_folders, prepare_tinyimagenet

STEPS = 200
TUNING_SEED = 100


def laptop_config(data: str, k: int, loss: str, options: Settings, *, seed: int, steps: int) -> Settings:
    """Return the differences from the defaults of `m3g train`: ten classes at 32 pixels, student and teacher."""
    return {
        "data": "image-arrays",
        "data_options": {
            "path": f"{{data}}/{data}.npz",
            "k": k,
            "batch_size": 32,
            "val": 0.1,
            "test": 0.3,
            "split_seed": seed,
        },
        "encoder": "conv",
        "encoder_options": {"channels": [16, 32, 32], "pool": 2},
        "loss": loss,
        "loss_options": dict(options),
        "heads": {"embedding_size": 64, "hidden": 256, "predictor": True},
        "teacher": {"enabled": True},
        "optim": {"warmup_epochs": 0.5, "learning_rate": 3e-3},
        "loop": {
            "epochs": 100,
            "max_steps": steps,
            "evaluate_every": 0,
            "log_every": 100,
            "accelerator": "cpu",
        },
        "seed": seed,
    }


def image_run(
    experiment: str,
    data: str,
    k: int,
    loss: str,
    options: Settings,
    seed: int,
    request: Request,
    *,
    labels: Labels,
    change: Settings | None = None,
    laptop: Settings | None = None,
) -> RunSpec:
    """Return one run: at laptop scale, or with the paper's recipe (ImageNet-1k, ViT-B/16, 300 epochs).

    `change` contains settings that differ from those of other image runs. `laptop` contains settings that apply only to
    laptop runs.
    """
    if request.scale == "paper":
        arm = {"loss": loss, "loss_options": options, "seed": seed, "data_options": {"root": "{data}", "k": k}}
        config = merged(full.shipped("imagenet"), arm)
    else:
        config = laptop_config(data, k, loss, options, seed=seed, steps=3 if request.miniature else STEPS)
        config = merged(config, laptop or {})
    defaults: Labels = {"data": data, "k": k, "seed": seed, "stage": "test"}
    return RunSpec(experiment, {"config": merged(config, change or {})}, {**defaults, **labels})


def sets(scale: str) -> dict[str, Prepare]:
    """Return, per set, the function that writes or checks its files.

    The sets are Tiny-ImageNet and any image folder or, at paper scale, ImageNet-1k.
    """
    if scale == "paper":
        return {"imagenet": check_paper_folders}
    return {"tinyimagenet": prepare_tinyimagenet, "folders": prepare_folders}


def work(settings: Settings, folder: Path, data: Path) -> dict[str, float]:
    """Train, and evaluate a linear probe on unaugmented images; at paper scale the probe is trained on random crops."""
    config = full.config_of(settings)
    if "path" not in config.data_options:
        return full.image_metrics(config, folder)
    net, views = fit_or_reference(config, settings.get("reference"), folder)
    train, val, test = (_features(net, views, split) for split in SPLITS)
    probe = Probe(*train)
    return {
        "validation": probe.accuracy(*val),
        "test": probe.accuracy(*test),
        "effective_rank": effective_rank(test[0].expand(2, -1, -1)),
        "test_images": len(test[1]),
    }


@torch.no_grad()
def _features(net: Network, data: ViewsData, split: Split) -> tuple[Tensor, Tensor]:
    rows = data.datasets[split]
    assert isinstance(rows, AugmentedRows)
    assert rows.label is not None
    net.eval()
    return torch.cat([net.features([part])[0] for part in rows.views[0].split(512)]), rows.label
