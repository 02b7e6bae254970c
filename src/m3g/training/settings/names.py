"""Names in a run's settings that something else must know: an encoder, a kind of view, their options, a data set's.

They are looked at before data are read and before the libraries that take seconds to load, so that a misspelt one is
told at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from m3g import _checks as checks
from m3g import data as data_sets
from m3g.nets.registry import ENCODERS

if TYPE_CHECKING:
    from m3g.training.settings.config import Config

READING = ("kind", "columns", "size", "rate", "seconds", "length")  # of a view, for the data set
TRAINING = ("share", "frozen", "learning_rate")


def check_names(config: Config) -> None:
    """Refuse encoders, options of encoders and settings of views that there are not."""
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
            checks.one_of(f"view.{name}.kind", settings["kind"], data_sets.KINDS)
        known = _options_of(encoder)
        if known is not None:
            checks.among(f"view.{name}", settings, dict.fromkeys([*READING, *TRAINING, "encoder", *known]))


def check_data_options(config: Config) -> None:
    """Refuse options that the data set does not have."""
    checks.among(f"data_options of {config.data}", config.data_options, data_sets.options(config.data))


def _check_encoder(name: str, encoder: Any) -> None:
    if encoder is not None and not (isinstance(encoder, str) and "." in encoder):  # that is the path of a class
        checks.one_of(name, encoder, ENCODERS)


def _options_of(encoder: str | None) -> list[str] | None:
    """What an encoder takes; of all that may be the default where none is named, None where only its class knows."""
    if encoder is not None and "." in encoder:
        return None
    kinds = [kind for kind in ENCODERS if kind != "transformers"] if encoder is None else [encoder]
    return list(dict.fromkeys(word for kind in kinds for word in inspect.signature(ENCODERS[kind].factory).parameters))
