"""Small images with k augmentations: what the laptop runs of imagenet, epsilon, cost and branches share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from m3g.evaluation import effective_rank, probe_scores
from m3g.experiments.engine.spec import Request, RunSpec, Settings, merged
from m3g.experiments.runner import full
from m3g.experiments.runner.prepare import check_folder, prepare_tinyimagenet
from m3g.experiments.runner.references import fit_or_reference

STEPS = 200
TUNING_SEED = 100


def laptop_config(k: int, loss: str, options: dict[str, Any], *, seed: int, steps: int) -> Settings:
    """What differs from the defaults of `m3g train`: ten classes of Tiny-ImageNet at 32 pixels, student and teacher."""
    n = 32
    return {
        "data": "image-arrays",
        "data_options": {
            "path": "{data}/tinyimagenet.npz",
            "k": k,
            "batch_size": n,
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
    k: int,
    loss: str,
    options: dict[str, Any],
    seed: int,
    request: Request,
    *,
    labels: dict[str, Any],
    change: Settings | None = None,
) -> RunSpec:
    """One laptop run."""
    config = laptop_config(k, loss, options, seed=seed, steps=3 if request.miniature else STEPS)
    return RunSpec(
        experiment, {"config": merged(config, change or {})}, {"k": k, "seed": seed, "stage": "test", **labels}
    )


def paper_run(
    experiment: str,
    k: int,
    loss: str,
    options: dict[str, Any],
    seed: int,
    *,
    labels: dict[str, Any],
    change: Settings | None = None,
) -> RunSpec:
    """One run with the paper's recipe: ImageNet-1k, ViT-B/16, 300 epochs."""
    own = {"loss": loss, "loss_options": options, "seed": seed, "data_options": {"root": "{data}", "k": k}}
    config = merged(merged(full.shipped("imagenet"), own), change or {})
    return RunSpec(experiment, {"config": config}, {"k": k, "seed": seed, "stage": "test", **labels})


def work(settings: Settings, folder: Path, data: Path) -> dict[str, Any]:
    """Train, and probe the features of plain images."""
    config = full.config_of(settings)
    if "path" not in config.data_options:
        return full.image_metrics(config, folder)
    net, views = fit_or_reference(config, settings.get("reference"), folder)
    train, val, test = (_features(net, views, split) for split in ("train", "val", "test"))
    validation, accuracy = probe_scores(*train, [val, test])
    return {
        "validation": validation,
        "test": accuracy,
        "effective_rank": effective_rank(test[0].expand(2, -1, -1)),
        "test_images": len(test[1]),
    }


@torch.no_grad()
def _features(net: Any, data: Any, split: str) -> tuple[Tensor, Tensor]:
    rows = data.datasets[split]
    net.eval()
    return torch.cat([net.features([part])[0] for part in rows.images.split(512)]), rows.label


def prepare(source: Path | None, target: Path, request: Request) -> None:
    if request.scale == "laptop":
        prepare_tinyimagenet(source, target)
    else:
        check_folder(source, "train", "val")
