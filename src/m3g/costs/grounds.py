"""Named costs of pairs of points (ground costs): (..., n, d), (..., m, d) -> (..., n, m)."""

from __future__ import annotations

import torch
from torch import Tensor

# Minimum distance in the Coulomb cost.
COULOMB_FLOOR = 1e-3
# In the Coulomb cost, squared distances below this fraction of |x|² + |y|² are recomputed from differences, because of
# cancellation.
CLOSE_RATIO = 1e-4
# Fraction of close pairs above which all distances are computed from differences.
MANY_FRACTION = 0.2
# Maximum number of coordinate differences in memory.
CHUNK_SIZE = 2**22


def squared_euclidean(x: Tensor, y: Tensor) -> Tensor:
    """Return the squared distances |x_i - y_j|²: (..., n, d), (..., m, d) -> (..., n, m)."""
    return _squared_distances(*_wide(x, y))[0].to(_common_type(x, y))


def coulomb(x: Tensor, y: Tensor) -> Tensor:
    """Return the Coulomb potential 1 / |x_i - y_j|, with distances clamped to at least 1e-3."""
    dtype = _common_type(x, y)
    x, y = _wide(x, y)
    squares, scales = _squared_distances(x, y)
    with torch.no_grad():
        exact = _exact_where_close(x.detach(), y.detach(), squares.detach(), scales.detach())
    # For close pairs, the value is computed from differences. The derivative is always that of the matrix product.
    squares = squares + (exact - squares).detach()
    return squares.clamp(min=COULOMB_FLOOR**2).rsqrt().to(dtype)


def cosine(x: Tensor, y: Tensor) -> Tensor:
    """Return 1 - cos(x_i, y_j). A zero vector has cosine 0 with all vectors, and gradient 0."""
    return 1 - unit_or_zero(x) @ unit_or_zero(y).transpose(-1, -2)


def unit_or_zero(points: Tensor) -> Tensor:
    """Return x / |x|. A zero vector stays zero, with derivative 0.

    Points are first divided by their largest absolute entry, so that lengths neither overflow nor underflow.
    """
    with torch.no_grad():
        largest = points.detach().abs().amax(-1, keepdim=True)
        zero = largest == 0
    scaled = torch.where(zero, 0.0, points) / torch.where(zero, 1.0, largest)
    # The norm has no derivative at zero, so zero vectors are replaced before it is computed.
    lengths: Tensor = torch.linalg.vector_norm(torch.where(zero, 1.0, scaled), dim=-1, keepdim=True)
    return scaled / lengths


def _common_type(x: Tensor, y: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, y.dtype)


def _wide(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return (x, y) if x.device.type == "mps" else (x.double(), y.double())  # mps has no float64


def _squared_distances(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return |x - y|² by one matrix product, and |x|² + |y|², to which the rounding error is proportional.

    The mean of y is first subtracted from x and y. This does not change distances, and the rounding error then depends
    on the spread of the points instead of their distance from the origin.
    """
    centre = y.detach().mean(-2, keepdim=True)
    x, y = x - centre, y - centre
    scales = x.square().sum(-1).unsqueeze(-1) + y.square().sum(-1).unsqueeze(-2)
    return scales - 2 * x @ y.transpose(-1, -2), scales


def _exact_where_close(x: Tensor, y: Tensor, squares: Tensor, scales: Tensor) -> Tensor:
    """Return the squared distances, recomputed from differences for close pairs; `scales` are |x|² + |y|²."""
    # On an accelerator, during tracing or under torch.func, the host must not read which pairs are close.
    unreadable = x.device.type != "cpu" or torch.compiler.is_compiling()
    if unreadable or torch._C._functorch.is_functorch_wrapped_tensor(squares) or x.shape[:-2] != y.shape[:-2]:
        return _exact(x, y)
    close = squares <= CLOSE_RATIO * scales
    num_close = int(close.sum())
    if num_close == 0:
        return squares
    if num_close > MANY_FRACTION * close.numel():
        return _exact(x, y)
    squares = squares.clone()
    *batch, rows, columns = close.nonzero(as_tuple=True)
    for chunk in torch.arange(num_close).split(max(1, CHUNK_SIZE // x.shape[-1])):
        where = [index[chunk] for index in batch]
        difference = x[(*where, rows[chunk])] - y[(*where, columns[chunk])]
        squares[(*where, rows[chunk], columns[chunk])] = difference.square().sum(-1)
    return squares


def _exact(x: Tensor, y: Tensor) -> Tensor:
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()
