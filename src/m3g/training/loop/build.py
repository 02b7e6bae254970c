"""Construction of the data module, the loss and the training module of a configuration."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

from m3g import _checks as checks
from m3g import data as data_sets
from m3g import losses
from m3g._options import typed
from m3g.data.storage.moved import MissingFileError
from m3g.nets.chunks import reject_batch_norm
from m3g.training.loop.seeds import seed_everything
from m3g.training.loop.start import Start, start_at_linear_cca
from m3g.training.loop.subsets import Subsets, encoder_seconds, sample_if_quicker, select_subsets
from m3g.training.mismatch.reliability import Mismatch
from m3g.training.runs.export import fitted_inputs, network
from m3g.training.runs.folder import Run
from m3g.training.runs.location import located, open_run_table
from m3g.training.settings.config import Config
from m3g.training.settings.views import reading_settings, with_data_defaults

if TYPE_CHECKING:
    from m3g.training.loop.module import MultiViewModule


def build_data(config: Config, run: Run | None = None) -> data_sets.ViewsData:
    """Return the data module of a configuration, with the seed of the run unless `data_options` sets another.

    With an existing `run`, its data files are found from any working directory.
    """
    config = config if run is None else located(config, run)
    kind = data_sets.find(config.data)
    options = {"seed": config.seed, **config.data_options}
    if run is not None and kind is data_sets.Objects:
        options["table"] = open_run_table(config, run)
    if "view" in inspect.signature(kind).parameters:
        options |= reading_settings(config)
        for name, fitted in fitted_inputs(run).items() if run is not None else ():
            options["view"].setdefault(name, {}).update(encoder="tfidf", fitted=fitted)
    try:
        data = _call(f"data_options of {config.data}", kind, options)
    except MissingFileError as error:
        option = "--data_options.data_root" if run is None else "--data-root"
        raise ValueError(f"{str(error).rstrip('.')}; if it is elsewhere, pass its folder with {option}.") from error
    checks.printable("the views' names", data.view_names)
    checks.printable("the classes' names", data.class_names or [])
    return data


def build_loss(config: Config) -> losses.ViewLoss:
    """Return the loss of a configuration."""
    return _call(f"loss_options of {config.loss}", losses.build, dict(config.loss_options), config.loss)


def build_module(
    config: Config, data: data_sets.ViewsData, *, trust: bool = False, start: bool = True
) -> MultiViewModule:
    """Return the training module of a configuration, with weights drawn from the seed of the run.

    Unless `start` is False, the linear maps of the encoders linear, tfidf and residual are initialised with linear CCA
    of the training rows, if possible (`start_at_linear_cca`).
    """
    from m3g.training.loop.module import KEPT_VIEWS, MultiViewModule  # imports Lightning

    loss = build_loss(config)
    seed_everything(config.seed, 0)
    net = network(with_data_defaults(config, data), data, trust=trust)
    initial = start_at_linear_cca(net, data) if start else Start()
    if config.loop.chunk_size is not None:
        reject_batch_norm(net.train())  # frozen encoders stay in evaluation mode
    seconds = encoder_seconds(net, k=data.k, n=data.batch_size)
    size, number = subsets(config, loss, k=data.k, batch_size=data.batch_size, encoder_seconds=seconds)
    if size == data.k:
        sample_if_quicker(loss, k=data.k, n=data.batch_size)
    students = config.teacher.student_views
    if students is not None and not (config.teacher.enabled and 1 <= students < size):
        raise ValueError(
            f"teacher.student_views must be None, or with teacher.enabled a number from 1 to {size - 1}, "
            f"got {students!r} with teacher.enabled {config.teacher.enabled}."
        )
    if config.teacher.enabled and students is None and not loss.takes_teacher:
        raise ValueError(
            f"loss must have a student–teacher form with teacher.enabled, got {config.loss!r}: "
            "set teacher.student_views, which works with every loss, or choose another loss."
        )
    if loss.needs_teacher and not config.teacher.enabled:
        raise ValueError(
            f"loss must be one that works without a teacher, got {config.loss!r}, which is minimised by collapse: "
            "set teacher.enabled and heads.predictor, or choose another loss."
        )
    if config.view_dropout > 0 and data.k <= KEPT_VIEWS:
        raise ValueError(
            f"view_dropout must be 0 with {data.k} views, because every row keeps {KEPT_VIEWS}, "
            f"got {config.view_dropout:g}."
        )
    module = MultiViewModule(
        net,
        loss,
        optim=config.optim,
        teacher=config.teacher,
        views_per_step=None if size == data.k else size,
        subsets_per_step=number,
        view_dropout=config.view_dropout,
        mismatch=_mismatch(data) if config.mismatch else None,
        chunk_size=config.loop.chunk_size,
        batch_size=data.batch_size,
        seed=config.seed,
    )
    module.start = initial
    return module


def warn_about_small_batches(config: Config, loss: losses.ViewLoss, data: data_sets.ViewsData) -> None:
    """Warn before training if the loss is `mcca` and batches are so small that views correlate by chance."""
    if isinstance(loss, losses.MCCA):
        n, d = data.batch_size * (num_processes(config) if loss.gather else 1), config.heads.embedding_size
        loss.warn_about_small_batch(n, d, batch="--data_options.batch_size", size="--heads.embedding_size")


def training_index(data: data_sets.ViewsData) -> Tensor | None:
    """Return the row numbers (n,) of the training split; None if views are drawn at random from one image or class."""
    from m3g.data.images.arrays import AugmentedRows  # it imports Lightning, which search does not require

    rows = data.datasets["train"]
    return None if isinstance(rows, AugmentedRows) else getattr(rows, "index", None)


def _mismatch(data: data_sets.ViewsData) -> Mismatch:
    index = training_index(data)
    if index is None:
        raise ValueError(
            f"mismatch must be false for {type(data).__name__}, whose views are drawn from one image or class, "
            "got true."
        )
    return Mismatch(data.k, int(index.max()) + 1)


def subsets(config: Config, loss: losses.ViewLoss, *, k: int, batch_size: int, encoder_seconds: float = 0.0) -> Subsets:
    """Return the size and number of the subsets of views that a step compares; see `select_subsets`."""
    n = batch_size * (num_processes(config) if loss.gather else 1)
    if n < 2:
        raise ValueError(f"batch_size must be at least 2, because rows are compared with each other, got {n}.")
    return select_subsets(
        loss,
        k=k,
        n=n,
        views_per_step=config.views_per_step,
        subsets_per_step=config.subsets_per_step,
        encoder_seconds=encoder_seconds,
    )


def num_processes(config: Config) -> int:
    """Return the number of training processes, set by torchrun or by `loop.devices`."""
    return int(os.environ.get("WORLD_SIZE", config.loop.devices))


Built = TypeVar("Built")


def _call(what: str, function: Callable[..., Built], options: Mapping[str, Any], *args: object) -> Built:
    """Call a function with options from the user; an unknown option raises a ValueError that lists the known ones."""
    known = inspect.signature(function).parameters
    missing = [p.name for p in list(known.values())[len(args) :] if p.default is p.empty and p.name not in options]
    if not any(p.kind is p.VAR_KEYWORD for p in known.values()):
        checks.among(what, options, known)
        if missing:
            group = what.split()[0]
            raise ValueError(f"{what} must have {missing[0]}, got none: use --{group}.{missing[0]} VALUE.")
    typed(function, options)
    try:
        return function(*args, **options)
    except TypeError as error:
        raise ValueError(f"{what} must be valid arguments, got an error: {error}.") from error
