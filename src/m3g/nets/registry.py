"""Registry of encoders by name, for the command line and settings files."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from torch import nn

from m3g import _checks
from m3g._catalogue import ENCODERS, find
from m3g._options import Options, typed
from m3g.nets.backbones import FITTED as FITTED_CONFIG
from m3g.nets.backbones import ModuleEncoder, import_module_class, output_width
from m3g.nets.layout import channels_first, image_shape

Spec: TypeAlias = str | Options | nn.Module  # see `build_encoder`
Shape: TypeAlias = Sequence[int]


def _channels(shape: Shape) -> dict[str, int]:
    return {"in_channels": (image_shape(shape) or shape)[0]}


# Arguments of the constructors that are determined by the shape of a view.
FITTED: dict[str, Callable[[Shape], dict[str, int]]] = {
    "mlp": lambda shape: {"in_features": math.prod(shape)},
    "linear": lambda shape: {"in_features": math.prod(shape)},
    "tfidf": lambda shape: {"in_features": math.prod(shape)},
    "residual": lambda shape: {"in_features": math.prod(shape)},
    "conv": _channels,
    "vit": lambda shape: {**_channels(shape), "size": (image_shape(shape) or shape)[-1]},
    "text": lambda shape: {"length": shape[0]},
    "eeg": lambda shape: {"in_channels": shape[0] if len(shape) > 1 else 1},
}
OTHER = {"spectrogram": ["rate"], "transformers": ["trust"]}  # set by the data and by an argument of the call
EMBEDDING = ("linear", "tfidf", "residual")  # their output is the embedding, so they accept the projector's options


def _fitted(kind: str, shape: Shape) -> dict[str, int]:
    return FITTED[kind](shape) if kind in FITTED else {}


def describe() -> list[tuple[str, str, str]]:
    """Return one row (name, summary, options) per encoder.

    Example:
        >>> describe()[3]
        ('conv', 'small images: a convolutional network', 'channels, pool')
    """
    return [(name, entry.summary, ", ".join(options(name))) for name, entry in ENCODERS.items()]


def options(name: str) -> list[str]:
    """Return the options of an encoder that a user may set.

    The others follow from the data and the projector, or are arguments of `build_encoder`.

    Example:
        >>> options("mlp")
        ['width', 'depth', 'dropout']
    """
    fitted = {*_fitted(name, (8, 8, 8)), *OTHER.get(name, ())}
    fitted |= {"hidden", "out_features", "bias"} if name in EMBEDDING else set()
    return [option for option in find("encoder", name, ENCODERS).options() if option not in fitted]


def build_encoder(
    spec: Spec, *, input_shape: Sequence[int], trust: bool = False, head: Options | None = None
) -> nn.Module:
    """Build an encoder with the attribute `out_features`, mapping (n, *input_shape) to (n, out_features).

    Args:
        spec: a key of `ENCODERS` or the path of a class; a mapping with the key under `kind` and its options; a mapping
            `{"class_path": "torch.nn.Linear", "init_args": {...}}`; or a module.
        input_shape: the shape of one sample of the view.
        trust: allow class paths outside m3g, torch.nn and transformers.
        head: options of the projector, for encoders whose output is the embedding.

    Example:
        >>> build_encoder({"kind": "mlp", "width": 64}, input_shape=(47,)).out_features
        64
        >>> linear = {"class_path": "torch.nn.Linear", "init_args": {"in_features": 47, "out_features": 8}}
        >>> build_encoder(linear, input_shape=(47,)).out_features
        8
    """
    if isinstance(spec, nn.Module):
        return spec if hasattr(spec, "out_features") else ModuleEncoder(spec, input_shape)
    if isinstance(spec, str):
        spec = {"class_path": spec} if "." in spec else {"kind": spec}
    options = dict(spec)
    if any("trust" in part for part in (options, options.get("init_args") or {})):
        raise ValueError("encoder options must not contain trust, which is an argument of the call: use --trust.")
    if "class_path" in options:
        module_class = import_module_class(options["class_path"], trust=trust)
        return ModuleEncoder(_call(module_class, options.get("init_args") or {}), input_shape)
    kind = _checks.one_of("encoder", options.pop("kind", None), ENCODERS)
    factory = ENCODERS[kind].load()
    typed(factory, options)
    if kind != "transformers":
        embedding = dict(head or {}) if kind in EMBEDDING else {}
        encoder = _call(factory, {**_fitted(kind, input_shape), **embedding, **options})
        encoder = channels_first(encoder, input_shape) if kind in ("conv", "vit") else encoder
        output_width(encoder, input_shape, name=kind)  # rejects a shape that the encoder cannot process
        return encoder
    if len(input_shape) == 3:
        # A model for images is built for the size of the data, unless the user sets another.
        fitted = dict(zip(FITTED_CONFIG, (input_shape[-1], input_shape[0])))
        options["config"] = {**fitted, **(options.get("config") or {})}
    encoder = _call(factory, {**options, "trust": trust})
    output_width(encoder, input_shape, name=f"transformers {options.get('model', 'vit')!r}")
    return encoder


def _call(factory: Callable[..., nn.Module], options: Options) -> nn.Module:
    """Return `factory(**options)`; raise a `ValueError` if the options do not fit its signature."""
    known = inspect.signature(factory).parameters
    name = getattr(factory, "__name__", "the encoder")
    if not any(p.kind is p.VAR_KEYWORD for p in known.values()):
        _checks.among(f"options of {name}", options, known)
    try:
        return factory(**options)
    except TypeError as error:
        raise ValueError(f"encoder options must be arguments of {name}, got {sorted(options)} ({error}).") from error
