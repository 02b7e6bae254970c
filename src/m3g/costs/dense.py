"""Unstructured costs: a cost tensor, or a function of k points."""

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
    """Problem given by its cost tensor (n_1, …, n_k)."""

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
    """Cost given by a function of k broadcastable tensors (..., d) that returns one cost per tuple (...).

    C[i_1, …, i_k] = function(x_1[i_1], …, x_k[i_k]) for every tuple of points (Section 3.1 of the paper).

    Shapes: views (..., k, n, d), or k tensors (..., n_l, d); costs (b, n_1, …, n_k) for a batch of b problems.

    Complexity: the function is evaluated on all n^k tuples, in chunks, for the cost tensor and again for the gradient.

    Args:
        function: the function, of differentiable torch operations.

    Example:
        >>> import torch
        >>> cost = FunctionCost(lambda x, y, z: (x * y * z).sum(-1))
        >>> tuple(cost(torch.rand(3, 4, 8)).dense().shape)
        (1, 4, 4, 4)

    Reference: Piran et al., ICML 2024 :cite:`piran2024`.
    """

    function: Callable[..., Tensor]

    def __call__(self, views: Views, *, mask: Tensor | None = None, unit: bool = False) -> FunctionProblem:
        parts, batch = flatten_batch(views)
        return FunctionProblem(self.function, parts, batch=batch)


class FunctionProblem(Problem):
    """Problem given by a function of k broadcastable tensors of points, with the features in the last axis."""

    def __init__(self, function: Callable[..., Tensor], views: Sequence[Tensor], *, batch: Sequence[int]):
        """Store the function, the k views (b, n_l, d), and the batch shape, whose product is b."""
        self.function = function
        self.sizes = tuple(view.shape[-2] for view in views)
        self.batch = tuple(batch)
        self.tensors = tuple(views)

    def _slab(self, views: Sequence[Tensor], rows: slice) -> Tensor:
        """Return differentiable costs (b, rows, n_2, …, n_k)."""
        points = []
        for l, view in enumerate(views):
            part = view[:, rows] if l == 0 else view
            shape = [part.shape[0]] + [1] * self.k + [part.shape[-1]]
            shape[l + 1] = part.shape[1]
            points.append(part.reshape(shape))
        return self._costs(points, (points[0].shape[0], points[0].shape[1], *self.sizes[1:]))

    def _costs(self, points: Sequence[Tensor], expected: tuple[int, ...]) -> Tensor:
        """Return the costs of tuples of points; raise a `ValueError` unless they are a tensor of shape `expected`."""
        shapes = ", ".join(str(tuple(part.shape)) for part in points)
        required = (
            f"cost must be a function of {self.k} broadcastable tensors (..., d) that reduces the last axis "
            f"(here from {shapes} to {expected})"
        )
        try:
            cost = self.function(*points)
        except Exception as error:
            raise ValueError(f"{required}, got {type(error).__name__}: {error}") from error
        if not isinstance(cost, Tensor) or tuple(cost.shape) != expected:
            got = tuple(cost.shape) if isinstance(cost, Tensor) else type(cost).__name__
            raise ValueError(f"{required}, got {got}.")
        cost = cost.to(points[0].dtype)
        return cost if self.factor == 1 else self.factor * cost

    def _slabs(self, start: int = 0, stop: int | None = None) -> list[slice]:
        """Split a range of rows of view 0 into chunks."""
        # A function may compute n^(k-1) d numbers per row before it reduces them. A chunk has at most 64 MiB of them,
        # but at least one row.
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
        def hessian_product(rows: slice, weights: Tensor, views: Sequence[Tensor]) -> tuple[Tensor, ...]:
            # The Hessian is symmetric, so a vector-Jacobian product equals the Jacobian-vector product.
            product: tuple[Tensor, ...] = torch.func.vjp(lambda *v: self._pull(rows, weights, v), *views)[1](
                tuple(directions)
            )
            return product

        return self._pulled(coupling, hessian_product)

    def change(self, directions: Sequence[Tensor]) -> dict[tuple[int, ...], Tensor]:
        parts = []
        for rows in self._slabs():
            cost = self._slab(self.tensors, rows)
            # With the Jacobian J of the cost, the map w -> Jᵀ w is linear, so its vector-Jacobian product with v is
            # J v. Unlike torch.func.jvp, this does not require a forward-mode derivative of the user's function.
            push = torch.func.vjp(lambda w, rows=rows: self._pull(rows, w, self.tensors), torch.zeros_like(cost))[1]
            parts.append(push(tuple(directions))[0])
        return {tuple(range(self.k)): torch.cat(parts, 1)}

    def _pull(self, rows: slice, weights: Tensor, views: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return d⟨weights, C⟩ / d views for some rows of view 0."""
        gradient: tuple[Tensor, ...] = torch.func.vjp(lambda *v: self._slab(v, rows), *views)[1](weights)
        return gradient

    def _pulled(self, coupling: Coupling, slab_gradient: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """Return the sum of `slab_gradient` over the slabs of a coupling, split into chunks of rows."""
        views = self.detached().tensors
        total = [torch.zeros_like(view) for view in views]
        for rows, weights in coupling.rows():
            for part in self._slabs(rows.start, rows.stop):
                local = weights[:, part.start - rows.start : part.stop - rows.start]
                for grad, piece in zip(total, slab_gradient(part, local.to(views[0].dtype), views)):
                    grad += piece
        return tuple(total)
