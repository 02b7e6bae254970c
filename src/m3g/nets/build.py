"""Construction of encoders and networks from a name, a mapping from a settings file, or a module."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar, cast

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from m3g import _checks
from m3g._catalogue import ENCODERS, VIEW_OPTIONS
from m3g._options import Options
from m3g.nets.heads import NoProjector, Predictor, Projector
from m3g.nets.multiview import MultiViewNet
from m3g.nets.registry import Spec, build_encoder
from m3g.solvers.shared.memory import memory_limit

Net = TypeVar("Net", bound=MultiViewNet)
Specs: TypeAlias = Spec | Sequence[Options]  # one description for all views, or one mapping per view
EXTERNAL = ("transformers", "vit")  # built by transformers, whose constructors do not only create layers


class _Encoder(Protocol):
    """Attributes that are read from or set on an encoder."""

    out_features: int
    learning_rate: float | None
    frozen: bool


def build_encoders(
    spec: Specs,
    *,
    view_shapes: Sequence[Sequence[int]],
    shared: bool = False,
    trust: bool = False,
    head: Options | None = None,
) -> list[nn.Module]:
    """Return a list of one encoder per view or, with `shared`, of one encoder for all views.

    `spec` is one description for all views, or a list of one mapping per view (see `build_net`), for which `shared` is
    ignored. With `shared`, all views must have the same shape. `trust` and `head` are passed to `build_encoder`.
    """
    build = partial(build_encoder, trust=trust, head=head)
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        return _encoders_per_view(spec, view_shapes, build)
    if not shared:
        # A given module is copied, so that every view has its own weights.
        return [
            build(copy.deepcopy(spec) if isinstance(spec, nn.Module) else spec, input_shape=shape)
            for shape in view_shapes
        ]
    if len({tuple(shape) for shape in view_shapes}) > 1:
        raise ValueError(
            f"views must have the same shape with shared=True, got {[tuple(shape) for shape in view_shapes]}: "
            "use one encoder per view (shared=False)."
        )
    return [build(spec, input_shape=view_shapes[0])]


def _encoders_per_view(
    specs: Sequence[Options], view_shapes: Sequence[Sequence[int]], build: Callable[..., nn.Module]
) -> list[nn.Module]:
    """Return one encoder per view: the encoder of an earlier view (`share`), or a new one, possibly frozen."""
    if len(specs) != len(view_shapes):
        raise ValueError(
            f"encoder must be one description, or a list of one mapping per view ({len(view_shapes)}), "
            f"got a list of {len(specs)}."
        )
    encoders: list[nn.Module] = []
    for l, (spec, shape) in enumerate(zip(specs, view_shapes)):
        earlier = spec.get("share")
        if earlier is not None:
            if not 0 <= earlier < l or tuple(view_shapes[earlier]) != tuple(shape):
                shapes = [tuple(view_shape) for view_shape in view_shapes]
                raise ValueError(
                    f"share must be an earlier view of the same shape, got view {earlier} for view {l}; the views have "
                    f"the shapes {shapes}."
                )
            encoders.append(encoders[earlier])
            continue
        options = {name: value for name, value in spec.items() if name not in VIEW_OPTIONS}
        encoders.append(build(options, input_shape=shape))
        encoder, rate = cast("_Encoder", encoders[-1]), spec.get("learning_rate")
        encoder.learning_rate = None if rate is None else float(rate)
        encoder.frozen = bool(spec.get("frozen"))
        if encoder.frozen:
            encoders[-1].requires_grad_(False)
    return encoders


def build_net(
    view_shapes: Sequence[Sequence[int]],
    *,
    encoder: Specs = "mlp",
    shared: bool = False,
    projector: Options | None = None,
    predictor: Options | None = None,
    trust: bool = False,
    kind: type[Net] = MultiViewNet,  # type: ignore[assignment]
) -> Net:
    """Build the network of k views: encoders, projectors and, if required, a predictor.

    Args:
        view_shapes: shape of a sample of each view, such as (5,) or (3, 32, 32).
        encoder: one description for all views (see `build_encoder`), or a list of one mapping per view. In such a
            mapping, `share` is the index of an earlier view whose encoder and projector are reused, `frozen` freezes
            the encoder, and `learning_rate` sets its peak learning rate.
        shared: whether all views use one encoder and one projector; ignored if `encoder` is a list.
        projector: options of `m3g.nets.Head`, such as `hidden` and `out_features`.
        predictor: options of `m3g.nets.Head` except `out_features`, which is the embedding size; an empty mapping for
            the defaults, and None for no predictor.
        trust: as in `build_encoder`.
        kind: class of the network.

    Example:
        >>> net = build_net([(5,), (9,)], projector={"hidden": 128, "out_features": 32}, predictor={})
        >>> [part.out_features for part in net.encoders], net.predictor.out_features
        ([256, 256], 32)
    """
    with _LimitedMemory() if _only_creates_layers(encoder) else contextlib.nullcontext():
        return kind(*_parts(view_shapes, encoder, shared, projector, predictor, trust))


def _parts(
    view_shapes: Sequence[Sequence[int]],
    encoder: Specs,
    shared: bool,
    projector: Options | None,
    predictor: Options | None,
    trust: bool,
) -> tuple[Sequence[nn.Module], Sequence[nn.Module], nn.Module | None]:
    """Return the arguments of `MultiViewNet`: encoders, projectors, and the predictor or None."""
    encoders = build_encoders(encoder, view_shapes=view_shapes, shared=shared, trust=trust, head=projector)
    heads: dict[int, NoProjector | Projector] = {}
    for part in encoders:
        if id(part) not in heads:
            width = cast("_Encoder", part).out_features
            embeds = getattr(part, "embeds", False)
            heads[id(part)] = NoProjector(width) if embeds else Projector(width, **(projector or {}))
    projectors = [heads[id(part)] for part in encoders]
    head = None
    if predictor is not None:
        size = projectors[0].out_features
        head = Predictor(size, **{"hidden": 512, **predictor, "out_features": size})
    return encoders, projectors, head


def _only_creates_layers(spec: Specs) -> bool:
    """Return whether the constructor of an encoder only creates layers, so that all its allocations are weights."""
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        return all(_only_creates_layers(part) for part in spec if part.get("share") is None)
    kind = spec.get("kind") if isinstance(spec, Mapping) else spec
    return isinstance(kind, str) and kind in ENCODERS and kind not in EXTERNAL


class _LimitedMemory(TorchFunctionMode):
    """Reject a network whose weights exceed the memory limit, before the weights beyond the limit are allocated."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0.0
        self.limit = memory_limit(torch.device("cpu"))

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if func is torch.empty:
            shape = args[0] if args and isinstance(args[0], Sequence) else args
            dtype = kwargs.get("dtype")
            width = (dtype if isinstance(dtype, torch.dtype) else torch.get_default_dtype()).itemsize
            self.size += float(min(math.prod(size for size in shape if isinstance(size, int)), 2**62)) * width
            advice = "choose a smaller width, hidden or embedding size, or views of fewer features"
            _checks.fits("the network's weights", self.size, self.limit, advice)
        return func(*args, **kwargs)
