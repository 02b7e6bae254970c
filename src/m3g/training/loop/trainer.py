"""Construction of Lightning's trainer: callbacks, hardware, and processes started by torchrun."""

from __future__ import annotations

import os
import sys

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.environments import ClusterEnvironment, LightningEnvironment, TorchElasticEnvironment
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from m3g.training.loop import logs
from m3g.training.loop.checkpoint import AtomicCheckpoints, SaveCheckpoints
from m3g.training.loop.processes import is_first, started
from m3g.training.loop.sharding import FullySharded
from m3g.training.runs.folder import Run
from m3g.training.settings.config import Config


def environment() -> ClusterEnvironment:
    """Return the environment of the processes: that of torchrun, or a single process.

    Slurm is ignored, because the same command must behave the same on a login node, in a job and under `srun`. In a
    job, Lightning would use the task number as the rank, and requeue the job when Slurm announces the time limit.
    """
    rank_zero_only.rank = 0 if is_first() else int(os.environ["RANK"])  # type: ignore[attr-defined]
    return TorchElasticEnvironment() if started() else LightningEnvironment()


def build_trainer(
    config: Config,
    folder: Run,
    *,
    callbacks: list[Callback],
    loggers: list[Logger],
    checkpoints: AtomicCheckpoints,
    save: SaveCheckpoints,
    sometimes_unused: bool,
) -> Trainer:
    """Return the trainer of a run; `sometimes_unused` states whether a step may leave parameters without a gradient."""
    loop = config.loop
    devices = int(os.environ["LOCAL_WORLD_SIZE"]) if started() else loop.devices
    nodes = int(os.environ["WORLD_SIZE"]) // devices if started() else 1
    several = devices * nodes > 1
    strategy: str | FullySharded = loop.strategy
    if several and strategy == "auto":
        strategy = "ddp_find_unused_parameters_true" if sometimes_unused else "ddp"
    if strategy == "fsdp":
        if not several:
            raise ValueError("loop.strategy fsdp requires several processes, got one: start them with torchrun.")
        strategy = FullySharded(devices * nodes)
    try:
        return Trainer(
            max_epochs=loop.epochs,
            max_steps=-1 if loop.max_steps is None else loop.max_steps,
            precision=loop.precision,  # type: ignore[arg-type]
            accumulate_grad_batches=loop.accumulate,
            gradient_clip_val=loop.clip,
            accelerator=loop.accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=strategy,
            sync_batchnorm=loop.sync_batchnorm,
            default_root_dir=folder.path,
            log_every_n_steps=loop.log_every,
            logger=loggers or False,
            callbacks=[
                logs.progress(),
                logs.MetricsFile(folder.path, every=loop.log_every),
                *callbacks,
                save,  # last, so that a checkpoint includes the effects of the others
            ],
            plugins=[checkpoints, environment()],
            enable_checkpointing=False,
            enable_progress_bar=sys.stdout.isatty(),
            enable_model_summary=False,
            use_distributed_sampler=False,  # the samplers of the data modules divide the rows among processes
            limit_val_batches=0,
            num_sanity_val_steps=0,
        )
    except (MisconfigurationException, ValueError) as error:
        got = ", ".join(f"{name} {getattr(loop, name)}" for name in ("accelerator", "strategy", "precision"))
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(
            f"loop must name an available accelerator, strategy and precision, got {got}: {reason}."
        ) from error
