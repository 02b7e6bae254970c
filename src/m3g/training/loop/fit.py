"""`train`: run the training of a configuration and write the run folder."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lightning.pytorch import Callback, Trainer

from m3g.data import ViewsData
from m3g.losses import ViewLoss
from m3g.training.loop import checkpoint, logs
from m3g.training.loop.best import keep_best, too_few_rows
from m3g.training.loop.build import build_data, build_module, warn_about_small_batches
from m3g.training.loop.loggers import Loggers
from m3g.training.loop.module import MultiViewModule
from m3g.training.loop.nonfinite import NonFiniteLoss
from m3g.training.loop.processes import abandon_group, end_group, is_first, prepare_group, started
from m3g.training.loop.trainer import build_trainer
from m3g.training.mismatch.entries import write_entries
from m3g.training.runs.export import save_network
from m3g.training.runs.files import cannot_write, write_text
from m3g.training.runs.folder import Run
from m3g.training.settings.check import check
from m3g.training.settings.config import Config
from m3g.training.settings.views import kinds, num_epochs, view_lines, with_data_defaults

FEW_MISSING = 0.01  # fraction of missing training entries below which nothing is logged
MANY_MISSING = 0.3  # fraction above which m3g-pairs often has a higher R@1 than m3g (docs/missing_views.md)


def train(
    config: Config,
    run: str | os.PathLike[str],
    *,
    data: ViewsData | None = None,
    resume: bool = False,
    accept_changes: bool = False,
    trust: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train with a configuration, write the network and the logs to the folder `run`, and return the run.

    Unlike `m3g train`, this function writes no scores: `evaluate_run` writes `results.json` and the plots, and
    `loop.evaluate_every` requires the callbacks of `m3g.training.runs.evaluate.watch`. There is one process unless
    torchrun has started several.

    Args:
        config: all settings; with `resume` those of the run.
        run: the run folder, which must not exist; with `resume`, the folder of an existing run.
        data: the result of `build_data(config)`; None builds it.
        resume: continue from the last checkpoint of the folder. On a CPU with the same number of threads, the result is
            bitwise identical to that of an uninterrupted run (see `m3g.training.loop.checkpoint`). A run that was
            killed before it wrote a checkpoint or a row of metrics.csv starts over.
        accept_changes: resume even if `config` differs from the settings in the checkpoint.
        trust: allow encoder classes from outside m3g, torch.nn and transformers.
        callbacks: additional Lightning callbacks.
    """
    check(config)
    if config.loop.devices > 1 and not started():
        raise ValueError(
            f"loop.devices must be 1 in Python without torchrun, got {config.loop.devices}: start the script with "
            "torchrun, or use m3g train."
        )
    folder = Run.of(run)
    with Loggers(config, folder) as loggers:
        fit(config, folder, data, loggers, callbacks, resume=resume, accept_changes=accept_changes, trust=trust)
    return folder


def fit(
    config: Config,
    folder: Run,
    data: ViewsData | None,
    loggers: Loggers,
    callbacks: Sequence[Callback] = (),
    *,
    resume: bool = False,
    accept_changes: bool = False,
    trust: bool = False,
) -> None:
    """Train with validated settings, see `train`. Without torchrun, also store the network in `folder.net`."""
    if resume and is_first():
        folder.lock()
    try:
        _fit(config, folder, data, loggers, callbacks, resume, accept_changes, trust)
        end_group()  # requires that the trainer, a local variable of `_fit`, has been deleted
    except BaseException as error:
        abandon_group(error)
        raise
    finally:
        folder.release()


def _fit(
    config: Config,
    folder: Run,
    data: ViewsData | None,
    loggers: Loggers,
    callbacks: Sequence[Callback],
    resume: bool,
    accept_changes: bool,
    trust: bool,
) -> None:
    first = is_first()  # the other processes write nothing and ignore the files that the first one writes
    saved = None
    if resume and not _never_began(folder):
        saved = checkpoint.read_checkpoint(folder.checkpoint)  # raises for a damaged file before anything is changed
    elif not resume and first:
        folder.check_new()
    data = build_data(config, folder if resume else None) if data is None else data
    config = with_data_defaults(config, data)
    # `num_epochs` rejects a batch larger than the data before anything is written.
    config = replace(config, loop=replace(config.loop, epochs=num_epochs(config, data)))
    module = build_module(config, data, trust=trust, start=saved is None)
    warn_about_small_batches(config, module.loss, data)
    rows = data.num_rows("train")
    if saved is not None:
        if not accept_changes:
            extended = folder.extended_from is not None
            checkpoint.check_settings(saved, config, folder.checkpoint, extended=extended)
        checkpoint.check_fits(saved, module, folder.checkpoint, rows=rows)
    if config.loop.strategy == "fsdp" and any(True for _ in module.loss.parameters()):
        raise ValueError(
            f"loss must have no parameters with loop.strategy fsdp, got {config.loss!r}: set "
            "loss_options.learn_temperature to false, or use ddp."
        )
    stoppers = keep_best(config.loop, data)
    with logs.quiet():
        trainer = build_trainer(
            config,
            folder,
            callbacks=[*callbacks, *stoppers],
            loggers=loggers.build(),
            checkpoints=checkpoint.AtomicCheckpoints(saved),
            save=checkpoint.SaveCheckpoints(
                folder.checkpoints, every=config.loop.checkpoint_every, rows=rows, config=config
            ),
            sometimes_unused=_sometimes_unused(config, data, module),
        )
    if config.loop.sync_batchnorm and trainer.world_size > 1 and trainer.strategy.root_device.type == "cpu":
        raise ValueError(
            "loop.sync_batchnorm must be false without GPUs, got true with several processes on CPUs: omit it."
        )
    if started():
        prepare_group()
        with logs.quiet():  # connects all processes before anything is written
            trainer.strategy.connect(module)
            trainer.strategy.setup_environment()
    created = [] if resume else [folder.path, *(path for path in folder.path.parents if not path.exists())]
    if first:
        if not resume:
            folder.create(config)
        else:
            _rewind(folder, 0 if saved is None else saved["global_step"])
        print(_headline(config, data, module), f"run folder {folder.path}", sep="\n", flush=True)
        if saved is not None:
            print(f"continuing after step {saved['global_step']}", flush=True)
        if folder.extended_from is not None:
            write_text(folder.config, config.to_yaml())
            if config.loop.epochs != folder.extended_from:
                print(
                    f"extended from {folder.extended_from} to {config.loop.epochs} epochs: the learning rate continues "
                    f"on the schedule of {config.loop.epochs} epochs",
                    flush=True,
                )
    resumed_at = None if saved is None else saved["global_step"]
    del saved  # the trainer has the only copy
    try:
        loggers.start(config)
        _run(trainer, module, data, folder, resume=resumed_at is not None)
    except BaseException:
        if first and not folder.checkpoint.exists():
            _discard(created)  # nothing to resume from
        raise
    if first and trainer.global_step == resumed_at:
        advice = "; a larger --loop.epochs extends it" if config.loop.max_steps is None else ""
        print(f"the run was already complete and was not trained further{advice}", flush=True)
    state = trainer.strategy.lightning_module_state_dict()  # a collective call if the weights are sharded
    weights = {name.removeprefix("net."): value for name, value in state.items() if name.startswith("net.")}
    for stopper in stoppers:
        weights = stopper.selected_weights(trainer, module)
        if not started():
            module.net.load_state_dict(weights)
        if first:
            print(stopper.outcome(trainer.current_epoch), flush=True)
    if first:
        save_network(module.net, config, folder, weights=weights, data=data)
        if module.mismatch is not None:
            index = data.datasets["train"].index  # type: ignore[attr-defined]
            write_entries(folder.mismatch, module.mismatch, data.view_names, index)
    if not started():  # otherwise the network refers to the process group, or is sharded
        folder.net = module.net.float()


def _run(trainer: Trainer, module: MultiViewModule, data: ViewsData, folder: Run, *, resume: bool) -> None:
    """Run Lightning's loop and convert its exceptions."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        with logs.quiet():
            trainer.fit(module, data, ckpt_path=folder.checkpoint if resume else None, weights_only=True)
    except NonFiniteLoss as error:
        raise ValueError(f"{error}; the last good checkpoint is {folder.checkpoint}.") from error
    except SystemExit as error:  # after Ctrl-C or SIGTERM; Lightning leaves Ctrl-C disabled
        signal.signal(signal.SIGINT, handler)
        saved = folder.checkpoint.exists()
        advice = f"continue with m3g train --resume {folder.path}" if saved else "nothing was saved"
        raise KeyboardInterrupt(advice) from error
    except OSError as error:
        raise cannot_write(error.filename or folder.path, error) from error


def _sometimes_unused(config: Config, data: ViewsData, module: MultiViewModule) -> bool:
    """Return whether a step may leave an encoder without gradient: its view is not drawn, or the teacher embeds it."""
    if config.shared:
        return False
    size = module.views_per_step or data.k
    return module.subsets_per_step <= math.comb(data.k - 1, size) or config.teacher.student_views is not None


def _headline(config: Config, data: ViewsData, module: MultiViewModule) -> str:
    line = f"{config.loss} on {data.num_rows('train')} rows of {data.k} views ({', '.join(data.view_names)})"
    if set(kinds(data)) != {"vector"}:
        line += "".join(f"\n{view}" for view in view_lines(config, data))
    line += "".join(f"\nnote: {note}" for note in data.notes)
    if module.start.line:
        line += f"\n{module.start.line}"
    line += _missing_entries(config, data, module.loss)
    if few := too_few_rows(config.loop, data):
        line += f"\n{few}"
    if module.views_per_step is not None:
        number, size = module.subsets_per_step, module.views_per_step
        line += f"\neach step compares {number} {'subset' if number == 1 else 'subsets'} of {size} views"
    if config.optim.warmup_epochs >= (config.loop.epochs or 1) > 1:
        epochs = f"{config.optim.warmup_epochs:g} epochs"
        line += f"\nthe learning rate increases until the end, because the warm-up of {epochs} covers the whole run"
    return line


def _missing_entries(config: Config, data: ViewsData, loss: ViewLoss) -> str:
    """Return a line about the treatment of missing training entries, with a suggestion if there are many.

    The line is empty if fewer than 1 % of the entries are missing.
    """
    mask = getattr(data.datasets["train"], "mask", None)
    fraction = 0.0 if mask is None else float((~mask).double().mean())
    if fraction < FEW_MISSING:
        return ""
    replaced = config.loss in ("m3g", "kl")
    treatment = "the normalised mean of the row's present views replaces them" if replaced else "the loss omits them"
    # No advice if the query is a product of views: any two views may be independent, and m3g-pairs compares pairs.
    many = replaced and fraction > MANY_MISSING and loss.readout is None
    advice = "; --loss m3g-pairs omits them and often has a higher R@1" if many else ""
    return f"\n{100 * fraction:.0f} % of the training entries are missing: {treatment}{advice}"


def _discard(created: list[Path]) -> None:
    """Remove a run folder that never had a checkpoint, and the parent folders created for it."""
    for path in created[:1]:
        shutil.rmtree(path, ignore_errors=True)
    for path in created[1:]:
        with contextlib.suppress(OSError):  # not empty
            path.rmdir()


def _never_began(folder: Run) -> bool:
    """Return whether a run was killed before its first checkpoint and its first logged step."""
    return not folder.checkpoint.exists() and not (folder.path / "metrics.csv").exists()


def _rewind(folder: Run, step: int) -> None:
    """Remove partial files, and rows of tables that were written after the step of the checkpoint."""
    folder.clean()
    for name in ("metrics.csv", "probes.csv"):
        logs.Table(folder.path / name).drop_after(step)
