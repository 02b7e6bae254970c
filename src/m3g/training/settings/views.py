"""Settings of single views: how a view is read, and which encoder it has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from m3g import _values as checks
from m3g._catalogue import ENCODERS, VIEW_OPTIONS, reading_options
from m3g.nets.layout import image_shape
from m3g.nets.processors import processor_of
from m3g.training.settings.config import Config

if TYPE_CHECKING:
    from m3g.data import ViewsData

Spec: TypeAlias = dict[str, object]  # description of an encoder, see `m3g.nets.build_net`
SHOWN = 8  # maximum number of printed columns of a view
MAX_CONV_SIDE = 64  # pixels; the receptive field of `conv` is too small for larger images


class Reading(TypedDict, total=False):
    """How the views of a table are read: options per view, and the encoder and preprocessing of all other views."""

    view: dict[str, dict[str, object]]
    encoder: str | None
    processor: Mapping[str, object]


def reading_settings(config: Config) -> Reading:
    """Return the options of a table's data module that determine how its views are read."""
    view: dict[str, dict[str, object]] = {}
    for name, options in config.view.items():
        view[name] = {option: value for option, value in options.items() if option in reading_options()}
        view[name] |= _processor(config, options)
        encoder = _named_encoder(config, name)
        if encoder is not None:
            view[name]["encoder"] = encoder
    return {"view": view, "encoder": _default_encoder(config), **_processor(config, {})}


def _default_encoder(config: Config) -> str | None:
    """Return the encoder of views without settings, or None for the default of a table.

    `shared` and `encoder_options` imply `text`, so that text is read as bytes and not as TF-IDF.
    """
    return config.encoder or ("text" if config.shared or config.encoder_options else None)


def _named_encoder(config: Config, name: str) -> str | None:
    """Return the encoder of a view with settings, or None for the default of a table.

    A shared encoder and options of the encoder `text` imply `text`, see `_default_encoder`.
    """
    options = config.view[name]
    if "encoder" in options:
        return str(options["encoder"])
    shares = "share" in options or any(others.get("share") == name for others in config.view.values())
    implied = shares or not set(ENCODERS["text"].options()).isdisjoint(options)
    return _default_encoder(config) or ("text" if implied else None)


def _processor(config: Config, options: Mapping[str, object]) -> Reading:
    """Return the preprocessing of a view's pretrained model; empty if it has none."""
    if "share" in options:
        options = config.view.get(str(options["share"]), {})
    separate = "encoder" in options
    encoder = options["encoder"] if separate else config.encoder
    model = (options if separate else config.encoder_options).get("model")
    if encoder != "transformers" or not isinstance(model, str) or "/" not in model:
        return {}
    return {"processor": processor_of(model)}


def kinds(data: ViewsData) -> list[str]:
    """Return the kind of every view: as stated by the data set, otherwise image or vector, depending on its shape."""
    if data.view_kinds is not None:
        return data.view_kinds
    return ["vector" if image_shape(shape) is None else "image" for shape in data.view_shapes]


def default_encoder(kind: str, shape: Sequence[int]) -> str:
    """Return the default encoder of a kind of view.

    Example:
        >>> [default_encoder("image", (3, side, side)) for side in (32, 224)], default_encoder("text", (128,))
        (['conv', 'vit'], 'text')
    """
    if kind == "image":
        return "conv" if max((image_shape(shape) or shape)[1:]) <= MAX_CONV_SIDE else "vit"
    return {"text": "text", "audio": "spectrogram", "signal": "eeg", "tfidf": "tfidf"}.get(kind, "mlp")


def _default_encoders(data: ViewsData, *, shared: bool) -> list[str]:
    """Return the default encoder of every view.

    If the encoder is not shared and two or more views are numeric or TF-IDF, numeric views get the encoder `residual`,
    which starts at linear CCA.
    """
    names = [default_encoder(kind, shape) for kind, shape in zip(kinds(data), data.view_shapes)]
    if shared or names.count("mlp") + names.count("tfidf") < 2:
        return names
    return ["residual" if name == "mlp" else name for name in names]


def with_data_defaults(config: Config, data: ViewsData) -> Config:
    """Return the settings with the defaults that depend on the data."""
    for name in config.view:
        if name not in data.view_names:
            known = data.view_names
            raise ValueError(
                f"view must name views of the data ({', '.join(known)}), got {name!r}{checks.suggestion(name, known)}"
            )
    separate = {name: _network_options(options) for name, options in config.view.items()}
    for l, (name, kind) in enumerate(zip(data.view_names, kinds(data))):
        options = separate.get(name, {})
        unused = [option for option in config.view.get(name, {}) if option not in options]
        if unused and not (data.inputs and "columns" in data.inputs[l]):
            raise ValueError(f"view.{name} must be a column of --table to have the option {unused[0]}, got other data.")
        _check_suits(name, kind, options.get("encoder", config.encoder if "share" not in options else None))
    shared = data.shared_encoder and not any(separate.values()) if config.shared is None else config.shared
    names = _default_encoders(data, shared=shared)
    if not any(separate.values()) and (config.encoder is not None or shared or len(set(names)) == 1):
        return replace(config, shared=shared, encoder=config.encoder or names[0])
    if shared:
        raise ValueError("shared must be false if views have separate encoders, got true: use view.NAME.share.")
    if config.encoder is None and config.encoder_options:
        raise ValueError(
            "encoder_options must be used with --encoder if views have different encoders, got "
            f"{', '.join(config.encoder_options)}: use --view.NAME.OPTION."
        )
    view = {}
    for name, default in zip(data.view_names, names):
        given = config.view.get(name, {})
        base = {} if "encoder" in given else {"encoder": config.encoder or default, **config.encoder_options}
        view[name] = {**given} if "share" in given else {**given, **base, **separate.get(name, {})}
    return replace(config, shared=False, view=view)


def _check_suits(name: str, kind: str, encoder: object) -> None:
    """Reject a text encoder for another kind of view, and the reverse; `build_encoder` validates the shape."""
    text = ("text", "tfidf", "transformers")  # the encoder determines whether a text is of kind text or tfidf
    if encoder not in ENCODERS or encoder == "transformers" or (encoder in text[:2]) == (kind in text[:2]):
        return
    purpose = ENCODERS[str(encoder)].summary.split(":")[0]
    advice = f": use {', '.join(text)}" if kind == "text" else ""
    raise ValueError(
        f"view.{name}.encoder must suit a view of kind {kind}, got {encoder}, which is for {purpose}{advice}."
    )


def view_lines(config: Config, data: ViewsData, *, columns: bool = False) -> list[str]:
    """Return one line per view: name, kind, shape and encoder; with `columns`, also its columns in the table.

    A single column with the name of the view is omitted.
    """
    width = max(map(len, data.view_names))
    lines = []
    for l, (name, kind, shape) in enumerate(zip(data.view_names, kinds(data), data.view_shapes)):
        line = f"  {name:{width}}  {kind} {'x'.join(map(str, shape))}, {_encoder_of(config, name)}"
        names = data.inputs[l].get("columns", []) if columns and data.inputs else []
        if names not in ([], [name]):
            line += f", from {', '.join(names[:SHOWN])}" + (f" and {len(names) - SHOWN} more" if names[SHOWN:] else "")
        lines.append(line)
    return lines


def _encoder_of(config: Config, name: str) -> str:
    options = config.view.get(name, {})
    if "share" in options:
        return f"the encoder of {options['share']}"
    return f"encoder {options.get('encoder', config.encoder)}" + (", frozen" if options.get("frozen") else "")


def num_epochs(config: Config, data: ViewsData) -> int:
    """Return the number of epochs, derived from the data if the settings do not specify it."""
    return config.loop.num_epochs(max(1, math.ceil(data.sampler().num_steps / config.loop.accumulate)))


def encoder_spec(config: Config, data_names: Sequence[str], rates: Sequence[int | None]) -> Spec | list[Spec]:
    """Return the `encoder` argument of `m3g.nets.build_net`: one description, or one per view.

    `rates` are the sampling rates of the views, None for views that are not sounds.
    """
    if not any(_network_options(options) for options in config.view.values()):
        assert config.encoder is not None
        return _spec(config.encoder, config.encoder_options, rates[0] if rates else None)
    specs: list[Spec] = []
    for name, rate in zip(data_names, rates):
        options = _network_options(config.view[name])
        spec = {option: options.pop(option) for option in VIEW_OPTIONS if option in options}
        _check_training(name, spec, list(data_names))
        if "share" in spec:
            if options or len(spec) > 1:
                more = [option for option in (*spec, *options) if option != "share"]
                raise ValueError(f"view.{name} must have no encoder options other than share, got {', '.join(more)}.")
            specs.append({"share": list(data_names).index(str(spec["share"]))})
            continue
        try:
            specs.append({**_spec(str(options.pop("encoder")), options, rate), **spec})
        except ValueError as error:
            raise ValueError(f"view.{name}: {error}") from error
    return specs


def _spec(encoder: str, options: Mapping[str, object], rate: int | None) -> Spec:
    if "." in encoder:
        return {"class_path": encoder, "init_args": dict(options)}
    checks.one_of("encoder", encoder, ENCODERS)
    sampling = {"rate": rate} if encoder == "spectrogram" and rate is not None else {}
    return {"kind": encoder, **sampling, **options}


def _check_training(name: str, spec: Spec, names: list[str]) -> None:
    if "share" in spec:
        checks.one_of(f"view.{name}.share", spec["share"], names[: names.index(name)])
    if spec.get("learning_rate") is not None:
        checks.positive(f"view.{name}.learning_rate", spec["learning_rate"])  # type: ignore[arg-type]
    if not isinstance(spec.get("frozen", False), bool):
        raise ValueError(f"view.{name}.frozen must be true or false, got {spec['frozen']!r}.")


def _network_options(options: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if name not in reading_options()}
