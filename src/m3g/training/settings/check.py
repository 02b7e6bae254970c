"""Validation of settings before anything is read or written.

Names of options are validated against their declarations (`m3g._catalogue`). The option values of a data set, an
encoder or a loss are validated when it is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from m3g import _values as checks
from m3g._catalogue import DATA, ENCODERS, LOSSES, READERS, VIEW_OPTIONS, find, reading_options

if TYPE_CHECKING:
    from m3g.training.settings.config import Config

LOGGERS = ("tensorboard", "csv", "wandb", "mlflow", "trackio", "none")


def check(config: Config) -> None:
    """Reject invalid settings."""
    _check_names(config)
    loop, optim = config.loop, config.optim
    for name in ("accumulate", "devices", "checkpoint_every", "log_every"):
        checks.positive_int(f"loop.{name}", getattr(loop, name))
    for name, value in (
        ("loop.epochs", loop.epochs),
        ("loop.max_steps", loop.max_steps),
        ("loop.chunk_size", loop.chunk_size),
        ("heads.hidden", config.heads.hidden),
        ("optim.reference_batch", optim.reference_batch),
    ):
        if value is not None:
            checks.positive_int(name, value)
    checks.positive_int("heads.embedding_size", config.heads.embedding_size)
    if loop.clip is not None:
        checks.positive("loop.clip", loop.clip)
    _check_loggers(config.logger)
    checks.seed("seed", config.seed)
    checks.fraction("teacher.momentum", config.teacher.momentum)
    checks.fraction("view_dropout", config.view_dropout)
    for name in ("evaluate_every", "patience"):
        checks.whole(f"loop.{name}", getattr(loop, name))
    for name in ("learning_rate", "eps"):
        checks.positive(f"optim.{name}", getattr(optim, name))
    for name in ("min_learning_rate", "warmup_epochs", "weight_decay", "end_weight_decay"):
        if getattr(optim, name) is not None:
            checks.non_negative(f"optim.{name}", getattr(optim, name))
    if not all(0 <= beta < 1 for beta in optim.betas):
        raise ValueError(f"optim.betas must be two numbers in [0, 1), got {optim.betas}.")


def _check_loggers(names: Sequence[str]) -> None:
    for name in names:
        checks.one_of("logger", name, LOGGERS)
    if len(set(names)) < len(names) or ("none" in names and len(names) > 1):
        raise ValueError(f"logger must be distinct names, or 'none' alone, got {', '.join(names)}.")


def _check_names(config: Config) -> None:
    """Reject unknown losses, data sets, encoders, kinds of views and options."""
    loss, data = find("loss", config.loss, LOSSES), find("data", config.data, DATA)
    checks.among(f"loss_options of {config.loss}", config.loss_options, loss.options())
    checks.among(f"data_options of {config.data}", config.data_options, data.options())
    _check_encoder("encoder", config.encoder)
    known = _options_of(config.encoder)
    if known is not None:
        checks.among("encoder_options", config.encoder_options, known)
    for name, settings in config.view.items():
        if not isinstance(settings, Mapping):
            raise ValueError(f"view.{name} must be a mapping of names to values, got {settings!r}.")
        encoder = settings.get("encoder", config.encoder)
        _check_encoder(f"view.{name}.encoder", encoder)
        if "kind" in settings:
            checks.one_of(f"view.{name}.kind", settings["kind"], READERS)
        known = _options_of(encoder)
        if known is not None:
            checks.among(
                f"view.{name}", settings, dict.fromkeys([*reading_options(), *VIEW_OPTIONS, "encoder", *known])
            )


def _check_encoder(name: str, encoder: object) -> None:
    if encoder is not None and not (isinstance(encoder, str) and "." in encoder):  # not a class path
        checks.one_of(name, encoder, ENCODERS)


def _options_of(encoder: str | None) -> list[str] | None:
    """Return the options of an encoder; None for a class path.

    If `encoder` is None, return the options of all encoders except `transformers`.
    """
    if encoder is not None and "." in encoder:
        return None
    kinds = [kind for kind in ENCODERS if kind != "transformers"] if encoder is None else [encoder]
    return list(dict.fromkeys(option for kind in kinds for option in ENCODERS[kind].options()))
