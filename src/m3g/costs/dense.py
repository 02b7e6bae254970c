"""Costs without a structure: a ready-made tensor, or any function of k points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g._checks import Views
from m3g.costs.circular import flatten_batch
from m3g.costs.coupling import Coupling
from m3g.costs.problem import Cost, Problem


class DenseProblem(Problem):
    """A ready-made cost tensor (n_1, …, n_k)."""

    def __init__(self, tensor: Tensor):
        self.sizes = tuple(tensor.shape)
        self.batch = ()
        self.tensors = (tensor,)

    def select(self, rows: Sequence[Tensor]) -> DenseProblem:
        tensor = self.tensors[0]
        for axis, chosen in enumerate(rows):
            tensor = tensor.index_select(axis, chosen)
        return DenseProblem(tensor)

    def slab(self, rows: slice) -> Tensor:
        return self.tensors[0][rows].detach().unsqueeze(0)

    def scaled(self, weight: float) -> DenseProblem:
        return self.with_tensors([weight * self.tensors[0]])

    def matched(self) -> Tensor:
        index = torch.arange(self.sizes[0], device=self.device)
        return self.tensors[0][(index,) * self.k].mean().unsqueeze(0)

    def gradient(self, coupling: Coupling) -> tuple[Tensor, ...]:
        out = torch.empty_like(self.tensors[0])
        for rows, slab in coupling.rows():
            out[rows] = slab[0]
        return (out,)

    def change(self, directions: Sequence[Tensor]) -> dict[tuple[int, ...], Tensor]:
        return {tuple(range(self.k)): directions[0].unsqueeze(0)}


@dataclass(frozen=True)
class FunctionCost(Cost):
    """A user's function of k tensors (..., d) that broadcast against each other: (...), one cost per tuple."""

    function: Callable[..., Tensor]

    def __call__(self, views: Views, *, mask: Tensor | None = None, unit: bool = False) -> FunctionProblem:
        parts, batch = flatten_batch(views)
        return FunctionProblem(self.function, parts, batch=batch)


class FunctionProblem(Problem):
    """Any function of k tensors of points, broadcast against each other with the features in the last axis."""

    def __init__(self, function: Callable[..., Tensor], views: Sequence[Tensor], *, batch: Sequence[int]):
        """`views` are k tensors (b, n_l, d)."""
        self.function = function
        self.sizes = tuple(view.shape[-2] for view in views)
        self.batch = tuple(batch)
        self.tensors = tuple(views)

    def _slab(self, views: Sequence[Tensor], rows: slice) -> Tensor:
        """Costs (b, rows, n_2, …, n_k), with their gradient."""
        points = []
        for l, view in enumerate(views):
            part = view[:, rows] if l == 0 else view
            shape = [part.shape[0]] + [1] * self.k + [part.shape[-1]]
            shape[l + 1] = part.shape[1]
            points.append(part.reshape(shape))
        return self._costs(points, (points[0].shape[0], points[0].shape[1], *self.sizes[1:]))

    def _costs(self, points: Sequence[Tensor], expected: tuple[int, ...]) -> Tensor:
        """The function's answer, or an error that says what it was given and what it should have returned."""
        shapes = ", ".join(str(tuple(part.shape)) for part in points)
        asked = (
            f"cost must be a function of {self.k} broadcastable tensors (..., d) that reduces the last axis, "
            f"of {shapes} to shape {expected} here"
        )
        try:
            cost = self.function(*points)
        except Exception as error:
            raise ValueError(f"{asked}, got {type(error).__name__}: {error}") from error
        if not isinstance(cost, Tensor) or tuple(cost.shape) != expected:
            got = tuple(cost.shape) if isinstance(cost, Tensor) else type(cost).__name__
            raise ValueError(f"{asked}, got {got}.")
        cost = cost.to(points[0].dtype)
        return cost if self.factor == 1 else self.factor * cost

    def _slabs(self, start: int = 0, stop: int | None = None) -> list[slice]:
        """Rows of view 0 to be computed at a time, within a range of them."""
        # A function may form the n^(k-1) d features of a row before it reduces them: keep that below 64 MiB.
        per_row = self.num_batch * self.num_tuples / self.sizes[0] * self.tensors[0].shape[-1] * 8
        step = max(1, int(2**26 / per_row))
        stop = self.sizes[0] if stop is None else stop
        return [slice(i, min(i + step, stop)) for i in range(start, stop, step)]

    def select(self, rows: Sequence[Tensor]) -> FunctionProblem:
        out = self.with_tensors([view.index_select(1, chosen) for view, chosen in zip(self.tensors, rows)])
        out.sizes = tuple(map(len, rows))
        return out

    def slab(self, rows: slice) -> Tensor:
        views = self.detached().tensors
        with torch.no_grad():
            parts = [self._slab(views, part) for part in self._slabs(rows.start, rows.stop)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def matched(self) -> Tensor:
        return self._costs(self.tensors, tuple(self.tensors[0].shape[:-1])).mean(-1)

    def gradient(self, coupling: Coupling) -> tuple[Tensor, ...]:
        return self._pulled(coupling, self._pull)

    def gradient_change(self, coupling: Coupling, directions: Sequence[Tensor]) -> tuple[Tensor, ...]:
        def second(rows: slice, weights: Tensor, views: Sequence[Tensor]) -> tuple[Tensor, ...]:
            # The matrix of second derivatives is symmetric, so its product from either side will do.
            found: tuple[Tensor, ...] = torch.func.vjp(lambda *v: self._pull(rows, weights, v), *views)[1](
                tuple(directions)
            )
            return found

        return self._pulled(coupling, second)

    def change(self, directions: Sequence[Tensor]) -> dict[tuple[int, ...], Tensor]:
        parts = []
        for rows in self._slabs():
            cost = self._slab(self.tensors, rows)
            # The derivative of w -> wᵀ J, which is linear in w, is J: so backward mode is all a function must have.
            push = torch.func.vjp(lambda w, rows=rows: self._pull(rows, w, self.tensors), torch.zeros_like(cost))[1]
            parts.append(push(tuple(directions))[0])
        return {tuple(range(self.k)): torch.cat(parts, 1)}

    def _pull(self, rows: slice, weights: Tensor, views: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """d⟨weights, C⟩ / d views for some rows of view 0."""
        found: tuple[Tensor, ...] = torch.func.vjp(lambda *v: self._slab(v, rows), *views)[1](weights)
        return found

    def _pulled(self, coupling: Coupling, of_rows: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """The sum of something over slabs of a coupling, some rows at a time."""
        views = self.detached().tensors
        total = [torch.zeros_like(view) for view in views]
        for rows, weights in coupling.rows():
            for part in self._slabs(rows.start, rows.stop):
                local = weights[:, part.start - rows.start : part.stop - rows.start]
                for grad, piece in zip(total, of_rows(part, local.to(views[0].dtype), views)):
                    grad += piece
        return tuple(total)
