"""Validation of tensors and plain values passed by users.

Each check raises a one-sentence `ValueError` that names the argument, the requirement and the value received; `extra`
raises an `ImportError`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from m3g._values import (
    among,
    existing,
    extra,
    finite,
    fits,
    flag,
    fraction,
    is_whole,
    non_negative,
    one_of,
    plain,
    positive,
    positive_int,
    printable,
    seed,
    shown,
    suggestion,
    whole,
)

__all__ = [
    "among",
    "existing",
    "extra",
    "finite",
    "fits",
    "flag",
    "fraction",
    "is_whole",
    "non_negative",
    "one_of",
    "plain",
    "positive",
    "positive_int",
    "printable",
    "seed",
    "shown",
    "suggestion",
    "whole",
]

Views = Tensor | Sequence[Tensor]
# Range of vector lengths whose squares have full precision in float32.
MIN_LENGTH, MAX_LENGTH = 1e-15, 1e18


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which a loss computes: float64 is kept, narrower types become float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def as_working(tensor: Tensor) -> Tensor:
    """Convert a tensor to the dtype in which a loss computes."""
    dtype = working_dtype(tensor.dtype)
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def stacked_views(views: Tensor, *, name: str = "views") -> Tensor:
    """Validate and return views in one floating point tensor (..., k, n, d) with k >= 2."""
    readable(name, views)
    if views.ndim < 3:
        raise ValueError(
            f"{name} must be a tensor of shape (..., k, n, d) or a sequence of k tensors (..., n, d), "
            f"got a tensor of shape {shape_of(views)}."
        )
    if views.shape[-3] < 2:
        raise ValueError(f"{name} must have k >= 2 views, got k = {views.shape[-3]}.")
    if not views.is_floating_point():
        raise ValueError(f"{name} must be floating point tensors, got {views.dtype}.")
    if views.numel() == 0:
        raise ValueError(f"{name} must have no dimension of size 0, got shape {shape_of(views)}.")
    return views


def view_sequence(views: Views, *, name: str = "views") -> list[Tensor]:
    """Validate views of possibly different sizes; return k >= 2 tensors (..., n_l, d) of a common dtype."""
    if isinstance(views, Tensor):
        return list(stacked_views(views, name=name).unbind(-3))
    others = [] if not isinstance(views, Sequence) else [view for view in views if not isinstance(view, Tensor)]
    if others or not isinstance(views, Sequence):
        got = " of ".join(map(described, [views] if isinstance(views, str) else [views, *others[:1]]))
        raise ValueError(f"{name} must be a tensor (..., k, n, d) or a sequence of k tensors (..., n, d), got {got}.")
    if len(views) < 2:
        raise ValueError(f"{name} must have k >= 2 views, got k = {len(views)}.")
    first = views[0]
    for l, view in enumerate(views):
        readable(f"{name}[{l}]", view)
        if not view.is_floating_point():
            raise ValueError(f"{name} must be floating point tensors, got {view.dtype} in view {l}.")
        if view.ndim < 2:
            raise ValueError(f"{name} must be tensors (..., n, d), got shape {shape_of(view)} in view {l}.")
        if view.shape[-1] != first.shape[-1] or view.shape[:-2] != first.shape[:-2]:
            raise ValueError(
                f"{name} must be tensors (..., n, d) with the same d and the same batch shape, "
                f"got {shape_of(first)} in view 0 and {shape_of(view)} in view {l}."
            )
        if view.numel() == 0:
            raise ValueError(f"{name} must have no dimension of size 0, got shape {shape_of(view)} in view {l}.")
        if view.device != first.device:
            raise ValueError(
                f"{name} must be on one device, got {first.device} in view 0 and {view.device} in view {l}."
            )
    return common_dtype(views)


def aligned_views(views: Views, *, name: str = "views") -> Tensor:
    """Validate views whose rows i describe the same object; return them stacked (..., k, n, d), at least float32."""
    if isinstance(views, Tensor):
        stacked = stacked_views(views, name=name)
    else:
        views = view_sequence(views, name=name)
        sizes = [view.shape[-2] for view in views]
        if len(set(sizes)) > 1:
            raise ValueError(f"{name} must have the same number of points n, got n = {sizes}.")
        stacked = torch.stack(views, dim=-3)
    return as_working(stacked)


def common_dtype(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Convert tensors to their common dtype."""
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor.to(dtype) for tensor in tensors]


def presence(mask: Tensor | None, views: Tensor, *, read_values: bool = True) -> Tensor | None:
    """Validate a mask, bool (k, n) or (..., k, n), and return it broadcast to the batch of the views; None stays None.

    Without `read_values`, only dtype and shape are validated, so that the host does not wait for the device.
    """
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"mask must be a bool tensor of shape (k, n), got {got}.")
    readable("mask", mask)
    if mask.shape != views.shape[:-1] and mask.shape != views.shape[-3:-1]:
        raise ValueError(
            f"mask must be a bool tensor of shape {shape_of(views)[-3:-1]} (one entry per view and point), "
            f"got shape {shape_of(mask)}."
        )
    mask = mask.to(views.device)
    empty = ~mask.any(-2)
    if read_values and bool(empty.any()):
        index = int(empty.reshape(-1, empty.shape[-1]).any(0).nonzero()[0])
        raise ValueError(f"mask must be True in at least one view of every object, got no view of object {index}.")
    return mask.expand(views.shape[:-1])


def masked_and_scaled(
    views: Tensor, mask: Tensor | None, *, normalize: bool, name: str = "views", check_entries: bool = True
) -> Tensor:
    """Return views (..., k, n, d) with missing points set to zero and, with `normalize`, the others of unit length.

    Points that are not missing are rejected if their entries or norms are not finite or, with `normalize`, if their
    norm is zero.
    Without `check_entries`, such points are accepted, and the result may contain NaN or inf.
    """
    if mask is not None:
        views = torch.where(mask.unsqueeze(-1), views, 0.0)
    elif not (check_entries or normalize):
        return views
    # The norm has no second derivative at zero, so missing points are replaced before it is computed.
    measured = views if mask is None else torch.where(mask.unsqueeze(-1), views, 1.0)
    norms = _lengths(measured) if normalize else torch.linalg.vector_norm(measured, dim=-1, keepdim=True)
    if check_entries:
        with torch.no_grad():
            # Comparisons with NaN are false, so these two conditions also detect NaN.
            smallest, largest = norms.aminmax()
            if not (bool(smallest > 0 if normalize else smallest >= 0) and bool(largest < math.inf)):
                valid = (norms > 0) & (norms < math.inf) if normalize else norms < math.inf
                _raise_for_first(~valid.squeeze(-1), views, name, "finite, non-zero" if normalize else "finite")
    return views / norms if normalize else views


def _lengths(points: Tensor) -> Tensor:
    """Return the norms |x| (..., 1), computed in float64 unless the squares are known to be in the range of float32.

    On mps, which has no float64, they are always computed in the type of the points.
    """
    norms: Tensor = torch.linalg.vector_norm(points, dim=-1, keepdim=True)
    if points.dtype == torch.float64 or points.device.type == "mps":
        return norms
    # On accelerators, for fake tensors, during tracing and under torch.func, the host must not read the range of norms,
    # so float64 is always used.
    unreadable = points.device.type != "cpu" or torch.compiler.is_compiling() or type(norms) is not Tensor
    if not unreadable and not torch._C._functorch.is_functorch_wrapped_tensor(norms):
        shortest, longest = norms.detach().aminmax()
        if shortest.item() > MIN_LENGTH and longest.item() < MAX_LENGTH:
            return norms
    wide: Tensor = torch.linalg.vector_norm(points, dim=-1, keepdim=True, dtype=torch.float64)
    return wide.to(points.dtype)


def _raise_for_first(invalid: Tensor, views: Tensor, name: str, required: str) -> None:
    """Raise an error that describes the first invalid point; `invalid` is bool (..., k, n)."""
    index = invalid.nonzero()[0]
    view, point = int(index[-2]), int(index[-1])
    vector = views[tuple(index)]
    if bool(vector.isnan().any()):
        what = "NaN"
    elif bool(vector.isinf().any()):
        what = "an infinite value"
    elif bool((vector == 0).all()):
        what = "a zero vector, which normalize=True cannot scale to unit length,"
    else:
        what = "values too large or too small for their norm to be represented"
    raise ValueError(f"{name} must be {required} vectors, got {what} in view {view}, point {point}.")


def same_shape(student: Tensor, teacher: Tensor) -> None:
    """Reject embeddings of a teacher whose shape differs from that of the student."""
    if student.shape != teacher.shape:
        raise ValueError(f"teacher must have the student's shape {shape_of(student)}, got shape {shape_of(teacher)}.")


def described(value: object) -> str:
    """Describe a value for an error message: its type, and the value itself if it is a short text or number."""
    text = repr(value) if isinstance(value, (str, int, float, complex)) else ""
    return f"{type(value).__name__} {text}" if 0 < len(text) <= 40 else type(value).__name__


def real_tensor(value: object, requirement: str, where: str = "") -> Tensor:
    """Convert an array of real numbers to a tensor; raise a `ValueError` with `requirement` for any other value."""
    try:
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
        if not tensor.is_complex():
            return tensor
    except (TypeError, ValueError, RuntimeError):
        pass
    raise ValueError(f"{requirement}, got {described(value)}{where}.") from None


def readable(name: str, tensor: Tensor) -> Tensor:
    """Reject tensors that do not store every entry: sparse, nested and meta tensors."""
    if tensor.is_nested:
        raise ValueError(f"{name} must be dense tensors, got a nested tensor.")
    if tensor.layout != torch.strided:
        raise ValueError(f"{name} must be dense tensors, got {tensor.layout}: call .to_dense() first.")
    if tensor.is_meta:
        raise ValueError(f"{name} must be tensors with values, got one on device 'meta'.")
    return tensor


def not_vmapped(name: str, tensor: Tensor, *, why: str = "the solver reads the marginal error on the host") -> None:
    """Reject tensors under `torch.vmap`, for code that reads values on the host or draws random numbers."""
    if torch._C._functorch.is_batchedtensor(tensor):
        raise ValueError(
            f"{name} must not be under torch.vmap, because {why}: "
            "pass the batch as leading dimensions, (b, k, n, d) -> (b,)."
        )


def finite_tensor(name: str, tensor: Tensor) -> None:
    """Reject tensors with NaN or infinite entries."""
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} must be finite numbers, got NaN or inf.")


def in_range_of(dtype: torch.dtype, epsilon: float, name: str = "epsilon") -> float:
    """Return epsilon if it is 0, or if numbers of its magnitude have full precision in this dtype; otherwise raise."""
    limits = torch.finfo(dtype)
    least, most = limits.tiny / limits.eps, limits.max * limits.eps
    if epsilon != 0 and not least <= epsilon <= most:
        raise ValueError(
            f"{name} must be between {least:.0e} and {most:.0e} for costs of type {str(dtype).removeprefix('torch.')}, "
            f"got {epsilon:g}: rescale the views or use float64."
        )
    return epsilon


def view_index(name: str, index: int, k: int) -> int:
    """Return the index of a view from 0 to k - 1; negative indices count from the last view."""
    number = plain(index)
    if not isinstance(number, int) or not is_whole(number) or not -k <= number < k:
        raise ValueError(f"{name} must be the index of a view, from 0 to {k - 1}, got {shown(index)}.")
    return number % k
