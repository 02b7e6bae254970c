"""Base class of all loss modules: interface, precision and gathering over processes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from m3g._checks import Views, aligned_views, common_dtype, flag, masked_and_scaled, presence, same_shape, shape_of
from m3g.costs import Cost
from m3g.losses.gather import gather_views, shared_generator
from m3g.losses.temperature import Temperature

P = ParamSpec("P")
R = TypeVar("R")


class ViewLoss(nn.Module):
    """Base class of losses, called as `loss(views, *, mask=None)`; some also accept `teacher=`.

    Args:
        normalize: scale every vector to unit length first.
        gather: compute the loss on the points of all processes, so that n is multiplied by the number of processes.
            Under `DistributedDataParallel`, the loss and its gradients then equal those of one process with the full
            batch. Has no effect in a single process.

    A subclass implements `compute`, which receives a tensor (..., k, n, d) of at least float32, outside autocast.
    Normalisation and validation of entries are left to `compute`. Class attributes declare what the loss supports.

    Attributes:
        takes_teacher: whether the loss has a student–teacher form, `loss(views, teacher=...)`.
        needs_teacher: whether the loss requires a teacher, because it is minimised by collapse without one.
        takes_batches: whether the loss accepts a batch of problems (..., k, n, d) and returns one value per problem.
        gather_dtype: dtype in which views are sent to other processes; None for the dtype of the views.
    """

    takes_teacher: ClassVar[bool] = False
    needs_teacher: ClassVar[bool] = False
    takes_batches: ClassVar[bool] = False
    gather_dtype: torch.dtype | None = None
    __call__: Callable[..., Tensor]  # `nn.Module` declares it to return Any

    @property
    def reads_values(self) -> bool:
        """Whether the host reads tensor values, which synchronises with the accelerator and breaks a compiled graph."""
        return True

    @property
    def visits_all_tuples(self) -> bool:
        """Whether the complexity is O(n^k), so that training on many views requires subsets of views."""
        return False

    @property
    def readout(self) -> Cost | None:
        """Cost whose query predicts a view from the others after training; None if the query is the others' mean."""
        return None

    @property
    def scheduled(self) -> bool:
        """Whether the loss changes during training and requires `set_progress` at every step."""
        return False

    def set_progress(self, progress: float) -> None:
        """Set the progress of training, from 0 at the first step to 1 at the last. Has no effect unless `scheduled`."""

    def __init__(self, *, normalize: bool = True, gather: bool = False) -> None:
        super().__init__()
        self.normalize = flag("normalize", normalize)
        self.gather = flag("gather", gather)

    def forward(self, views: Views, *, mask: Tensor | None = None, teacher: Views | None = None) -> Tensor:
        views = aligned_views(views)
        mask = presence(mask, views, read_values=self.reads_values)
        if teacher is not None:
            if not self.takes_teacher:
                raise ValueError(f"teacher must be None for {type(self).__name__}, which has no teacher form.")
            teacher = aligned_views(teacher, name="teacher").detach()
            same_shape(views, teacher)
            views, teacher = common_dtype([views, teacher])
        if self.gather:
            views, mask, teacher = gather_views(views, mask, teacher, dtype=self.gather_dtype)
        inputs = (views, mask) if teacher is None else (views, mask, teacher)
        if not torch.is_autocast_enabled(views.device.type):
            return self.compute(*inputs)
        with torch.autocast(views.device.type, enabled=False):
            return self.compute(*inputs)

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        """Return the loss of views (..., k, n, d), mask (..., k, n) and teacher, gathered from all processes."""
        raise NotImplementedError

    def report(self, value: Tensor) -> dict[str, float]:
        """Return further quantities to log for the last call, whose result was `value`."""
        return {}


class FunctionLoss(ViewLoss):
    """Module form of a loss function.

    A subclass sets the class attribute `function(views, *, mask, normalize, **options)`.

    Args:
        normalize, gather: as in `ViewLoss`.
        options: further arguments of the function, stored as attributes. A `Temperature` is evaluated at every call.
            With `gather`, all processes use the state of rank 0's `generator`.
    """

    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, *, normalize: bool, gather: bool, **options: object) -> None:
        super().__init__(normalize=normalize, gather=gather)
        self.options = tuple(options)
        for name, value in options.items():
            setattr(self, name, value)

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        options: dict[str, Any] = {name: getattr(self, name) for name in self.options}
        for name, value in options.items():
            if isinstance(value, Temperature):
                options[name] = value()
        if self.gather and "generator" in options:
            options["generator"] = shared_generator(options["generator"], device=views.device)
        if teacher is not None:
            options["teacher"] = teacher
        return type(self).function(views, mask=mask, normalize=self.normalize, **options)


def outside_autocast(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function to run outside autocast, which would convert its float32 operands to lower precision."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch.autocast(_device(*args, *kwargs.values()).type, enabled=False):
            return function(*args, **kwargs)

    return run


def _device(*values: object) -> torch.device:
    """Return the device of the first tensor, or the CPU."""
    for value in values:
        if isinstance(value, Tensor):
            return value.device
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], Tensor):
            return value[0].device
    return torch.device("cpu")  # the function itself rejects arguments without a tensor


def require_points(views: Tensor, min_points: int = 2) -> None:
    """Raise a `ValueError` if the views (..., n, d) have fewer than `min_points` points."""
    if views.shape[-2] < min_points:
        raise ValueError(
            f"views must have at least {min_points} points per view for this loss, got shape {shape_of(views)}."
        )


def clean(
    views: Views, mask: Tensor | None, *, normalize: bool, min_points: int = 2, name: str = "views"
) -> tuple[Tensor, Tensor | None]:
    """Return a validated batch (k, n, d) and its mask (k, n) or None.

    Missing points are set to zero. With `normalize`, the others are scaled to unit length.
    """
    normalize, views = flag("normalize", normalize), aligned_views(views, name=name)
    if views.ndim != 3:
        raise ValueError(f"{name} must be one batch of shape (k, n, d), got shape {shape_of(views)}.")
    require_points(views, min_points)
    mask = presence(mask, views)
    return masked_and_scaled(views, mask, normalize=normalize, name=name), mask
