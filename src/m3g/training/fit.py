"""From a configuration to a finished run folder."""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from m3g import _checks as checks
from m3g import data as data_sets
from m3g import losses
from m3g.training import checkpoint, logs
from m3g.training.config import Config, check
from m3g.training.export import network, save_network
from m3g.training.module import MultiViewModule, NonFiniteLoss, seed_everything
from m3g.training.run import Run
from m3g.training.sharding import FullySharded

# n ** k up to which the exact solver of M3G takes some tens of milliseconds, and in all subsets of a step together
QUICK_TUPLES = 2e7
QUICK_STEP = 6e7


def build_data(config: Config) -> data_sets.ViewsData:
    """The data module of a configuration; the run's seed also fixes its order unless the options do."""
    kind = data_sets.MODULES[checks.one_of("data", config.data, data_sets.MODULES)]
    return _call(f"data_options of {config.data}", kind, {"seed": config.seed, **config.data_options})


def build_module(config: Config, data: data_sets.ViewsData, *, trust: bool = False) -> MultiViewModule:
    """Network, loss and training settings, with weights drawn from the run's seed."""
    shown, number = subsets(config, data)
    students = config.teacher.student_views
    if students is not None and not (config.teacher.enabled and 1 <= students < shown):
        raise ValueError(
            f"teacher.student_views must be None, or with teacher.enabled a number from 1 to {shown - 1}, "
            f"got {students!r} with teacher.enabled {config.teacher.enabled}."
        )
    seed_everything(config.seed, 0)
    net = network(settled(config, data), data.view_shapes, trust=trust)
    checks.one_of("loss", config.loss, losses.available())
    loss = _call(f"loss_options of {config.loss}", losses.build, dict(config.loss_options), config.loss)
    if config.teacher.enabled and students is None and not getattr(loss, "takes_teacher", False):
        raise ValueError(
            f"loss must have a student–teacher form with teacher.enabled, got {config.loss!r}: "
            "set teacher.student_views, which works with every loss, or choose another loss."
        )
    return MultiViewModule(
        net,
        loss,
        optim=config.optim,
        teacher=config.teacher,
        views_per_step=None if shown == data.k else shown,
        subsets_per_step=number,
        seed=config.seed,
    )


def settled(config: Config, data: data_sets.ViewsData) -> Config:
    """The settings with what they leave to the data set filled in."""
    return replace(config, shared=data.shared_encoder) if config.shared is None else config


def subsets(config: Config, data: data_sets.ViewsData) -> tuple[int, int]:
    """How many views are compared at a time, and how many such subsets a step takes the mean of."""
    size, number = config.views_per_step, config.subsets_per_step
    if size is not None and not 2 <= size <= data.k:
        raise ValueError(f"views_per_step must be None or a number from 2 to {data.k}, got {size!r}.")
    exact = config.loss in ("m3g", "kl") and config.loss_options.get("solver") != "sampled"
    n = data.batch_size * (processes(config) if config.loss_options.get("gather") else 1)
    if n < 2:
        raise ValueError(f"batch_size must be at least 2 points, which are compared with each other, got {n}.")
    if size is None:
        quick = [s for s in range(3, data.k) if n**s <= QUICK_TUPLES]
        size = max([min(3, data.k), *quick]) if exact and n**data.k > QUICK_TUPLES else data.k
    most = math.comb(data.k, size)
    if number is None:
        number = min(most, 20, max(1, int(QUICK_STEP / n**size)) if exact else most)
    elif not 1 <= number <= most:
        raise ValueError(
            f"subsets_per_step must be None or a number from 1 to {most}, the subsets of {size} out of {data.k} "
            f"views, got {number!r}."
        )
    return size, number


def processes(config: Config) -> int:
    """How many processes train together: torchrun's, or those that Lightning starts itself."""
    return int(os.environ.get("WORLD_SIZE", config.loop.devices))


def started() -> bool:
    """Whether torchrun has started the processes already; it says so in the environment."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def train(
    config: Config,
    run: str | os.PathLike[str],
    *,
    resume: bool = False,
    trust: bool = False,
    callbacks: list[Callback] | None = None,
) -> Run:
    """Train as `config` says and leave everything in the folder `run`.

    Args:
        config: every setting; with `resume` that of the run.
        run: a folder that does not exist yet; with `resume`, one that does.
        resume: continue from the folder's last checkpoint. On CPU the result is, bit for bit, that of a run
            that was never interrupted.
        trust: allow encoder classes from outside m3g, torch.nn and transformers.
        callbacks: more Lightning callbacks.
    """
    folder = Run(run)
    # the other processes write nothing, and must not stumble over what the first has made
    first = getattr(rank_zero_only, "rank", 0) == 0
    check(config)
    kept = None
    if resume:
        kept = checkpoint.read_checkpoint(folder.checkpoint)  # a damaged one is an error before anything is touched
    elif first and folder.path.exists():
        folder.create(config)  # which explains what to do about it
    data = build_data(config)
    config = settled(config, data)
    data.sampler()  # refuses a batch larger than the data before anything is written
    module = build_module(config, data, trust=trust)
    if kept is not None:
        checkpoint.check_fits(kept, module, folder.checkpoint, rows=data.num_rows("train"))
    if config.loop.strategy == "fsdp" and any(True for _ in module.loss.parameters()):
        raise ValueError(
            f"loss must be one without parameters of its own, got {config.loss!r}: set "
            "loss_options.learn_temperature to false, or use ddp."
        )
    with logs.quiet():
        trainer = _trainer(config, folder, callbacks or [], sometimes_unused=_sometimes_unused(config, data))
    if config.loop.sync_batchnorm and trainer.world_size > 1 and trainer.strategy.root_device.type == "cpu":
        raise ValueError(
            "loop.sync_batchnorm must be left out without GPUs, got several processes on CPUs: leave it out."
        )
    if started():
        with logs.quiet():  # what fit does first, so that all processes have met before anything is written
            trainer.strategy.connect(module)
            trainer.strategy.setup_environment()
    made = [path for path in (folder.path, *folder.path.parents) if not path.exists()]
    if first:
        if kept is None:
            folder.create(config)
        else:
            _rewind(folder, kept["global_step"])
        print(_headline(config, data, module), f"run folder {folder.path}", sep="\n", flush=True)
        if kept is not None:
            print(f"continuing after step {kept['global_step']}", flush=True)
    try:
        with logs.quiet():
            trainer.fit(module, data, ckpt_path=folder.checkpoint if resume else None, weights_only=True)
    except NonFiniteLoss as error:
        raise ValueError(f"{error}; the last good checkpoint is {folder.checkpoint}.") from error
    except SystemExit as error:  # how Lightning ends after Ctrl-C or SIGTERM; it leaves Ctrl-C disabled
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise KeyboardInterrupt(f"continue with m3g train --resume {folder.path}") from error
    except BaseException:
        if first and not folder.checkpoint.exists():
            _discard(made)  # nothing to resume from: leave nothing behind
        raise
    weights = trainer.strategy.lightning_module_state_dict()  # all processes give their share, if each has one
    if first:
        save_network(
            module.net,
            config,
            folder.path,
            weights={name.removeprefix("net."): value for name, value in weights.items() if name.startswith("net.")},
            view_shapes=data.view_shapes,
            view_names=list(data.view_names),
            scaling=data.scaling,
        )
    return folder


def _sometimes_unused(config: Config, data: data_sets.ViewsData) -> bool:
    """Whether a step may leave an encoder without a gradient: the view is not drawn, or comes from the teacher."""
    if config.shared:
        return False
    size, number = subsets(config, data)
    return number <= math.comb(data.k - 1, size) or config.teacher.student_views is not None


def _trainer(config: Config, folder: Run, callbacks: list[Callback], *, sometimes_unused: bool) -> Trainer:
    loop = config.loop
    devices = int(os.environ["LOCAL_WORLD_SIZE"]) if started() else loop.devices
    nodes = int(os.environ["WORLD_SIZE"]) // devices if started() else 1
    several = devices * nodes > 1
    strategy = loop.strategy
    if several and strategy == "auto":
        strategy = "ddp_find_unused_parameters_true" if sometimes_unused else "ddp"
    if strategy == "fsdp" and not several:
        raise ValueError("loop.strategy fsdp must have several processes, got one: start them with torchrun.")
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
            strategy=FullySharded(devices * nodes) if strategy == "fsdp" else strategy,
            sync_batchnorm=loop.sync_batchnorm,
            log_every_n_steps=loop.log_every,
            logger=TensorBoardLogger(folder.path, name="tensorboard", version=""),
            callbacks=[
                logs.progress(),
                logs.MetricsFile(folder.path, every=loop.log_every),
                *callbacks,
                checkpoint.SaveCheckpoints(
                    folder.checkpoints, every=loop.checkpoint_every
                ),  # last: what it saves is done
            ],
            plugins=[checkpoint.AtomicCheckpoints()],
            enable_checkpointing=False,
            enable_progress_bar=sys.stdout.isatty(),
            enable_model_summary=False,
            use_distributed_sampler=False,  # the data modules split their order between processes themselves
            limit_val_batches=0,
            num_sanity_val_steps=0,
        )
    except (MisconfigurationException, ValueError) as error:
        got = ", ".join(f"{name} {getattr(loop, name)}" for name in ("accelerator", "strategy", "precision"))
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(
            f"loop must name an accelerator, strategy and precision that there are, got {got}: {reason}."
        ) from error


def _headline(config: Config, data: data_sets.ViewsData, module: MultiViewModule) -> str:
    line = f"{config.loss} on {data.num_rows('train')} rows of {data.k} views ({', '.join(data.view_names)})"
    if module.views_per_step is not None:
        line += f"\neach step compares {module.subsets_per_step} subsets of {module.views_per_step} views"
    if config.optim.warmup_epochs >= config.loop.epochs > 1:
        line += (
            f"\nthe learning rate rises to the end: the warm-up of {config.optim.warmup_epochs:g} epochs fills the run"
        )
    return line


def _discard(made: list[Path]) -> None:
    """Remove a run folder that never had a checkpoint, and the folders above it that were made for it."""
    for path in made[:1]:
        shutil.rmtree(path, ignore_errors=True)
    for path in made[1:]:
        with contextlib.suppress(OSError):  # something else lives there by now
            path.rmdir()


def _rewind(folder: Run, step: int) -> None:
    """Forget what was written after the checkpoint's step, and what was only half written."""
    folder.clean()
    for name in ("metrics.csv", "probes.csv"):
        logs.Table(folder.path / name).forget_after(step)


def _call(what: str, function: Any, options: dict[str, Any], *args: Any) -> Any:
    """Call with a user's options; an option it does not know is a ValueError that lists those it does."""
    known = inspect.signature(function).parameters
    missing = [p.name for p in list(known.values())[len(args) :] if p.default is p.empty and p.name not in options]
    if not any(p.kind is p.VAR_KEYWORD for p in known.values()):
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise ValueError(f"{what} take {', '.join(known)}, got {', '.join(unknown)}.")
        if missing:
            group = what.split()[0]
            raise ValueError(f"{what} take {missing[0]}, got nothing: give it, as in --{group}.{missing[0]} VALUE.")
    checks.typed(function, options)
    try:
        return function(*args, **options)
    except TypeError as error:
        raise ValueError(f"{what} take other values: {error}.") from error
