"""Processes that share one solve: each has some rows of the leading view, and marginals are summed over all.

Vectors (b, N) are the same on all processes, so that all take the same steps. What an own slab of the coupling
contributes to a marginal is partial, and an all-reduce completes it. A number that the host reads is that of rank 0.

Every exchange begins with a meeting, an all-reduce of three numbers. A process that fails anywhere in the solve attends
one more meeting, at which it reports the failure; the others attend it before their next exchange, and raise too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from m3g.costs.coupling import Edge, block_matrix
from m3g.costs.problem import vector_dtype

_sharing: ContextVar[Processes | None] = ContextVar("processes that share a solve", default=None)


class SharedSolveError(RuntimeError):
    """Another process failed in a solve that several processes share."""


def processes() -> Processes | None:
    """The processes that share the solve that runs here; None where it has no others, as in compiled code."""
    return None if torch.compiler.is_compiling() else _sharing.get()


def read(numbers: Tensor) -> float:
    """The largest of some numbers on the host, as rank 0 computed it."""
    return agreed(numbers.item() if numbers.numel() == 1 else numbers.max().item())


def read_two(first: Tensor, second: Tensor) -> tuple[float, float]:
    """`read` of two tensors (b,), for which the host waits once."""
    both = torch.stack([first.to(second.dtype), second])
    found, other = (both if both.shape[1] == 1 else both.amax(1)).flatten().tolist()
    sharing = _sharing.get()
    return (found, other) if sharing is None else sharing.of_first(found, other)


def agreed(number: float) -> float:
    """A number as rank 0 computed it."""
    sharing = _sharing.get()
    return number if sharing is None else sharing.of_first(number, 0.0)[0]


def gather_rows(own: Tensor, dim: int) -> Tensor:
    """The tensors of all processes, which have one shape, joined along an axis in the order of the ranks."""
    own = own.movedim(dim, 0).contiguous()
    full = own.new_empty(dist.get_world_size() * len(own), *own.shape[1:])
    # The first is the name since torch 2.13, which deprecates the second.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(full, own)
    return full.movedim(0, dim)


@dataclass(frozen=True)
class Processes:
    """All processes of the default group, on the device of the problem."""

    device: torch.device

    @property
    def rank(self) -> int:
        return dist.get_rank()

    @property
    def count(self) -> int:
        return dist.get_world_size()

    def rows(self, n: int) -> slice:
        """The part of n rows that is this process's own."""
        return slice(n * self.rank // self.count, n * (self.rank + 1) // self.count)

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Share the solve that runs inside. Where one process raises, all do."""
        token = _sharing.set(self)
        try:
            yield
            self._meet()
        except SharedSolveError:
            raise
        except Exception:
            self._attend(0.0, 0.0, failed=True)
            raise
        finally:
            _sharing.reset(token)

    def _attend(self, *numbers: float, failed: bool = False) -> list[float]:
        brought = torch.tensor([float(failed), *numbers], dtype=vector_dtype(self.device), device=self.device)
        dist.all_reduce(brought)
        found: list[float] = brought.tolist()
        return found

    def _meet(self, first: float = 0.0, second: float = 0.0) -> tuple[float, float]:
        """The sums of two numbers of every process."""
        failures, first, second = self._attend(first, second)
        if failures:
            raise SharedSolveError(f"{failures:.0f} of {self.count} processes failed in a solve that they share.")
        return first, second

    def of_first(self, first: float, second: float) -> tuple[float, float]:
        """Two numbers of rank 0."""
        return self._meet(first, second) if self.rank == 0 else self._meet()

    def reduced(self, tensor: Tensor, by: str = "SUM") -> Tensor:
        """The sum (or "MIN", "MAX") of the tensors of all processes, in place where possible."""
        self._meet()
        tensor = tensor.contiguous()
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, by))
        return tensor

    def joined(self, own: Tensor, n: int, *, dim: int = 1) -> Tensor:
        """All n rows of a tensor, of which each process has its own."""
        if n % self.count == 0:
            self._meet()
            return gather_rows(own, dim)
        rows = self.rows(n)
        full = own.new_zeros(*own.shape[:dim], n, *own.shape[dim + 1 :])
        full.narrow(dim, rows.start, rows.stop - rows.start).copy_(own)
        return self.reduced(full)


@dataclass(frozen=True)
class Shard:
    """The slab of a coupling that belongs to the own rows of view `lead`.

    Attributes:
        sizes: of all views, with all rows.
    """

    processes: Processes
    lead: int
    sizes: Sequence[int]

    @property
    def rows(self) -> slice:
        return self.processes.rows(self.sizes[self.lead])

    @property
    def own_sizes(self) -> list[int]:
        rows = self.rows
        return [rows.stop - rows.start if l == self.lead else n for l, n in enumerate(self.sizes)]

    def own(self, vector: Tensor) -> Tensor:
        """(..., N) -> (..., N'): without the rows of other processes."""
        parts = list(vector.split(list(self.sizes), -1))
        parts[self.lead] = parts[self.lead][..., self.rows]
        return torch.cat(parts, -1)

    def own_pairs(self, full: dict[Edge, Tensor]) -> dict[Edge, Tensor]:
        """Matrices {(l, m): (b, n_l, n_m)} without the rows of other processes."""
        rows, every = self.rows, slice(None)
        return {
            (l, m): pair[:, rows if l == self.lead else every, rows if m == self.lead else every]
            for (l, m), pair in full.items()
        }

    def _padded(self, own: Tensor) -> Tensor:
        start = sum(self.sizes[: self.lead])
        first, rows, rest = self.rows.start, self.rows.stop - self.rows.start, self.sizes[self.lead] - self.rows.stop
        before, lead, after = own.split([start, rows, own.shape[-1] - start - rows], -1)
        return torch.cat([before, torch.nn.functional.pad(lead, (first, rest)), after], -1)

    def summed(self, own: Tensor) -> Tensor:
        """(..., N') -> (..., N): what the slabs of all processes contribute to a vector."""
        return self.processes.reduced(self._padded(own))

    def joined(self, own: Tensor) -> Tensor:
        """(..., N') -> (..., N), where all processes agree on the other views."""
        start = sum(self.sizes[: self.lead])
        rows = self.rows.stop - self.rows.start
        before, lead, after = own.split([start, rows, own.shape[-1] - start - rows], -1)
        lead = self.processes.joined(lead, self.sizes[self.lead], dim=own.ndim - 1)
        return torch.cat([before, lead, after], -1)

    def pairs(self, partial: dict[Edge, Tensor]) -> dict[Edge, Tensor]:
        """All pair marginals in full, of those of the own slab."""
        return self.summed_with_pairs(next(iter(partial.values())).new_zeros(0), partial)[1]

    def summed_with_pairs(self, own: Tensor, partial: dict[Edge, Tensor]) -> tuple[Tensor, dict[Edge, Tensor]]:
        """`summed` and `pairs` in one exchange."""
        edges, none = (self.rows.start, self.sizes[self.lead] - self.rows.stop), (0, 0)
        full = [self._padded(own) if own.numel() else own]
        for (l, m), pair in partial.items():
            pad = [*(edges if m == self.lead else none), *(edges if l == self.lead else none)]
            full.append(torch.nn.functional.pad(pair, pad))
        flat = self.processes.reduced(torch.cat([each.flatten() for each in full]))
        vector, *pairs = (part.view(each.shape) for part, each in zip(flat.split([x.numel() for x in full]), full))
        return vector, dict(zip(partial, pairs))

    def hessian(self, partial: dict[Edge, Tensor], marginals: Tensor) -> Callable[[Tensor], Tensor]:
        """Multiplication of a vector (b, N) by [diag(m_l), P_lm], of the pair marginals of the own slab."""
        own = self.own(marginals)
        matrix = block_matrix(partial, torch.zeros_like(own), self.own_sizes)

        def multiply(vector: Tensor) -> Tensor:
            return self.summed(torch.bmm(matrix, self.own(vector).unsqueeze(-1)).squeeze(-1)).addcmul_(
                marginals, vector
            )

        return multiply
