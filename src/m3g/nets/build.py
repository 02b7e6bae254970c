"""From a description (a name, a mapping from a configuration file, a module) to encoders and networks."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from m3g import _checks
from m3g._options import typed
from m3g.nets.backbones import FITTED, ModuleEncoder, TransformersEncoder, import_module_class, width_on
from m3g.nets.conv import ConvNet
from m3g.nets.encoders import MLP, EEGEncoder
from m3g.nets.heads import Predictor, Projector
from m3g.nets.multiview import MultiViewNet
from m3g.solvers.shared.memory import memory_limit

ENCODERS = {
    "mlp": "a multilayer perceptron for rows of numbers (options: width, depth, dropout)",
    "conv": "a small convolutional network for small images (options: channels, pool)",
    "eeg": "the paper's convolutions for one signal channel (options: channels, kernels, dropout, pool)",
    "transformers": "image, text and audio models of transformers (options: model, pretrained, config, pool)",
}

Spec = str | Mapping[str, Any] | nn.Module


def build_encoder(spec: Spec, *, input_shape: Sequence[int], trust: bool = False) -> nn.Module:
    """An encoder with the attribute `out_features`, mapping (n, *input_shape) to (n, out_features).

    Args:
        spec: a name of `ENCODERS` (mlp, conv, eeg, transformers); a mapping with the name under `kind` and the options
            beside it; a mapping `{"class_path": "torch.nn.Linear", "init_args": {...}}`; or a ready module.
        input_shape: the shape of one sample of the view.
        trust: allow class paths outside m3g, torch.nn and transformers.

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
    if "class_path" in options:
        found = import_module_class(options["class_path"], trust=trust)
        module = _call(found, dict(options.get("init_args") or {}))
        return ModuleEncoder(module, input_shape)
    kind = _checks.one_of("encoder kind", options.pop("kind", None), ENCODERS)
    if kind == "mlp":
        return _own(MLP, {"in_features": math.prod(input_shape), **options})
    if kind == "conv":
        return _own(ConvNet, {"in_channels": input_shape[0], **options})
    if kind == "eeg":
        return _own(EEGEncoder, {"in_channels": input_shape[0] if len(input_shape) > 1 else 1, **options})
    typed(TransformersEncoder, options)
    if len(input_shape) == 3:
        # Images: the model is built for the size of the data unless the user says otherwise.
        fitted = dict(zip(FITTED, (input_shape[-1], input_shape[0])))
        options["config"] = {**fitted, **(options.get("config") or {})}
    encoder = _call(TransformersEncoder, options)
    width_on(encoder, input_shape, name=f"transformers {options.get('model', 'vit')!r}")
    return encoder


def _own(cls: type[nn.Module], options: dict[str, Any]) -> nn.Module:
    """An encoder of this package, whose annotations say what its options take."""
    typed(cls, options)
    return _call(cls, options)


def _call(cls: type[nn.Module], options: dict[str, Any]) -> nn.Module:
    try:
        return cls(**options)
    except TypeError as error:
        raise ValueError(
            f"encoder options must be arguments of {cls.__name__}, got {sorted(options)} ({error})."
        ) from error


def build_encoders(
    spec: Spec, *, view_shapes: Sequence[Sequence[int]], shared: bool = False, trust: bool = False
) -> list[nn.Module]:
    """One encoder per view, or a list of one that all views share (their shapes must then be equal)."""
    if not shared:
        # A ready module is copied, so that every view has its own weights.
        return [
            build_encoder(copy.deepcopy(spec) if isinstance(spec, nn.Module) else spec, input_shape=shape, trust=trust)
            for shape in view_shapes
        ]
    if len({tuple(shape) for shape in view_shapes}) > 1:
        raise ValueError(
            f"views must have one shape with shared=True, got {[tuple(shape) for shape in view_shapes]}: "
            "use one encoder per view (shared=False)."
        )
    return [build_encoder(spec, input_shape=view_shapes[0], trust=trust)]


def build_net(
    view_shapes: Sequence[Sequence[int]],
    *,
    encoder: Spec = "mlp",
    shared: bool = False,
    projector: Mapping[str, Any] | None = None,
    predictor: Mapping[str, Any] | None = None,
    trust: bool = False,
) -> MultiViewNet:
    """Encoders, projectors and, if `predictor` is given (a mapping, perhaps empty), a predictor, for k views.

    `shared` makes one encoder and one projector serve all views. `projector` and `predictor` hold options of
    `m3g.nets.Head` (`hidden`, `out_features`); the predictor keeps the embedding's size.

    Example:
        >>> net = build_net([(5,), (9,)], projector={"hidden": 128, "out_features": 32}, predictor={})
        >>> [part.out_features for part in net.encoders], net.predictor.out_features
        ([256, 256], 32)
    """
    build = partial(_build_net, view_shapes, encoder, shared, projector, predictor, trust)
    if _is_own(encoder):
        _refuse_huge(build)
    return build()


def _build_net(
    view_shapes: Sequence[Sequence[int]],
    encoder: Spec,
    shared: bool,
    projector: Mapping[str, Any] | None,
    predictor: Mapping[str, Any] | None,
    trust: bool,
) -> MultiViewNet:
    encoders = build_encoders(encoder, view_shapes=view_shapes, shared=shared, trust=trust)
    projectors = [Projector(part.out_features, **(projector or {})) for part in encoders]  # type: ignore[arg-type]
    head = None
    if predictor is not None:
        size = projectors[0].out_features
        head = Predictor(size, **{"hidden": 512, **predictor, "out_features": size})
    return MultiViewNet(encoders, projectors, head)


def _is_own(spec: Spec) -> bool:
    """Whether an encoder's constructor only makes layers, so that it can be tried without memory."""
    kind = spec.get("kind") if isinstance(spec, Mapping) else spec
    return isinstance(kind, str) and kind in ENCODERS and kind != "transformers"


def _refuse_huge(build: Callable[[], nn.Module]) -> None:
    """Build once without memory, to refuse a network whose weights this machine cannot hold."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        try:
            size = sum(weight.numel() * weight.element_size() for weight in build().parameters())
        except RuntimeError as error:  # more numbers than can be counted
            raise ValueError(f"the network must fit in memory, but its weights are too many: {error}.") from error
    instead = "choose a smaller width, hidden or embedding size, or views of fewer features"
    _checks.fits("the network's weights", size, memory_limit(torch.device("cpu")), instead)
