"""Communication between processes that share one solve.

Each process computes one slab of the coupling: the tuples that contain one of its rows of the leading view. In the
sampled solver, it computes its part of the samples instead. An all-reduce sums the contributions of all processes to
the marginals. Vectors (b, N), for b problems with N points in all views together, are the same on all processes, and
numbers read on the host are those of rank 0, so that all processes take the same steps.

Every exchange starts with a synchronisation, an all-reduce of six numbers. A process that raises takes part in one more
synchronisation and reports the failure there, so that the others raise instead of waiting.
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

# Maximum number of values that a synchronisation carries.
CARRIED = 5
_sharing: ContextVar[Processes | None] = ContextVar("processes that share a solve", default=None)


class SharedSolveError(RuntimeError):
    """Another process failed in a solve that several processes share."""


def processes() -> Processes | None:
    """Return the processes that share the current solve; None if it is not shared, or in compiled code."""
    return None if torch.compiler.is_compiling() else _sharing.get()


def read(numbers: Tensor) -> float:
    """Return the largest entry of a tensor as a Python number, as computed by rank 0."""
    return agreed([numbers.item() if numbers.numel() == 1 else numbers.max().item()])[0]


def read_two(first: Tensor, second: Tensor) -> tuple[float, float]:
    """Return the largest entries of two tensors (b,), with one synchronisation."""
    both = torch.stack([first.to(second.dtype), second])
    largest_first, largest_second = agreed((both if both.shape[1] == 1 else both.amax(1)).flatten().tolist())
    return largest_first, largest_second


def read_each(*numbers: Tensor) -> list[float]:
    """Return tensors of one element on the host, as computed by rank 0, with one synchronisation."""
    if numbers[0].device.type == "cpu":
        return agreed([number.item() for number in numbers])
    return agreed(torch.stack([number.reshape(()) for number in numbers]).tolist())


def agreed(numbers: list[float]) -> list[float]:
    """Return at most `CARRIED` numbers as computed by rank 0."""
    sharing = _sharing.get()
    return numbers if sharing is None else sharing.from_rank_0(numbers)


def gather_rows(local: Tensor, dim: int) -> Tensor:
    """Concatenate tensors of equal shape from all processes along an axis, in rank order."""
    local = local.movedim(dim, 0).contiguous()
    full = local.new_empty(dist.get_world_size() * len(local), *local.shape[1:])
    # torch 2.13 introduces all_gather_single and deprecates all_gather_into_tensor.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(full, local)
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
        """Return the part of n rows that belongs to this process."""
        return slice(n * self.rank // self.count, n * (self.rank + 1) // self.count)

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Context in which solves are shared. If one process raises, all raise."""
        token = _sharing.set(self)
        try:
            yield
            self._synchronise()
        except SharedSolveError:
            raise
        except Exception:
            self._all_reduce([], failed=True)
            raise
        finally:
            _sharing.reset(token)

    def _all_reduce(self, numbers: list[float], *, failed: bool = False) -> list[float]:
        """Return the number of processes that failed, and the sums of the numbers of all processes."""
        padded = [float(failed), *numbers, *[0.0] * (CARRIED - len(numbers))]
        tensor = torch.tensor(padded, dtype=vector_dtype(self.device), device=self.device)
        dist.all_reduce(tensor)
        sums: list[float] = tensor.tolist()
        return sums

    def _synchronise(self, numbers: list[float] | None = None) -> list[float]:
        """Return the sums of the numbers of all processes; raise if a process has failed."""
        failures, *sums = self._all_reduce(numbers or [])
        if failures:
            raise SharedSolveError(f"{failures:.0f} of {self.count} processes failed in a solve that they share.")
        return sums

    def from_rank_0(self, numbers: list[float]) -> list[float]:
        """Return the numbers of rank 0."""
        return self._synchronise(numbers if self.rank == 0 else None)[: len(numbers)]

    def reduced(self, tensor: Tensor, by: str = "SUM") -> Tensor:
        """Return the sum (or "MIN", "MAX") of the tensors of all processes, in place if possible."""
        self._synchronise()
        tensor = tensor.contiguous()
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, by))
        return tensor

    def joined(self, local: Tensor, n: int, *, dim: int = 1) -> Tensor:
        """Return all n rows of a tensor along axis `dim`; each process passes the rows that belong to it."""
        if n % self.count == 0:
            self._synchronise()
            return gather_rows(local, dim)
        rows = self.rows(n)
        full = local.new_zeros(*local.shape[:dim], n, *local.shape[dim + 1 :])
        full.narrow(dim, rows.start, rows.stop - rows.start).copy_(local)
        return self.reduced(full)


@dataclass(frozen=True)
class Shard:
    """Slab of a coupling: the tuples of the rows of view `lead` that belong to this process.

    Vectors of the full coupling have length N, the sum of `sizes`. Vectors of the slab have length N', because they
    contain only these rows of the leading view.

    Attributes:
        processes: the processes that share the solve.
        lead: index of the leading view.
        sizes: sizes of all views, including the rows of other processes.
    """

    processes: Processes
    lead: int
    sizes: Sequence[int]

    @property
    def rows(self) -> slice:
        """The rows of the leading view that belong to this process."""
        return self.processes.rows(self.sizes[self.lead])

    @property
    def own_sizes(self) -> list[int]:
        rows = self.rows
        return [rows.stop - rows.start if l == self.lead else n for l, n in enumerate(self.sizes)]

    def own(self, vector: Tensor) -> Tensor:
        """Return a vector without the rows of other processes: (..., N) -> (..., N')."""
        parts = list(vector.split(list(self.sizes), -1))
        parts[self.lead] = parts[self.lead][..., self.rows]
        return torch.cat(parts, -1)

    def own_pairs(self, full: dict[Edge, Tensor]) -> dict[Edge, Tensor]:
        """Return matrices {(l, m): (b, n_l, n_m)} without the rows of other processes."""
        rows, all_rows = self.rows, slice(None)
        return {
            (l, m): pair[:, rows if l == self.lead else all_rows, rows if m == self.lead else all_rows]
            for (l, m), pair in full.items()
        }

    def _padded(self, local: Tensor) -> Tensor:
        """Return a vector with zeros in the rows of other processes: (..., N') -> (..., N)."""
        start = sum(self.sizes[: self.lead])
        first, rows, rest = self.rows.start, self.rows.stop - self.rows.start, self.sizes[self.lead] - self.rows.stop
        before, lead, after = local.split([start, rows, local.shape[-1] - start - rows], -1)
        return torch.cat([before, torch.nn.functional.pad(lead, (first, rest)), after], -1)

    def summed(self, local: Tensor) -> Tensor:
        """Return the sum of the contributions of all processes to a vector: (..., N') -> (..., N)."""
        return self.processes.reduced(self._padded(local))

    def joined(self, local: Tensor) -> Tensor:
        """Return the vector with the rows of all processes, which agree on the other views: (..., N') -> (..., N)."""
        start = sum(self.sizes[: self.lead])
        rows = self.rows.stop - self.rows.start
        before, lead, after = local.split([start, rows, local.shape[-1] - start - rows], -1)
        lead = self.processes.joined(lead, self.sizes[self.lead], dim=local.ndim - 1)
        return torch.cat([before, lead, after], -1)

    def pairs(self, partial: dict[Edge, Tensor]) -> dict[Edge, Tensor]:
        """Return the pair marginals of the full coupling from those of the slab of this process."""
        return self.summed_with_pairs(next(iter(partial.values())).new_zeros(0), partial)[1]

    def summed_with_pairs(self, local: Tensor, partial: dict[Edge, Tensor]) -> tuple[Tensor, dict[Edge, Tensor]]:
        """Return `summed(local)` and `pairs(partial)`, with one exchange."""
        padding, none = (self.rows.start, self.sizes[self.lead] - self.rows.stop), (0, 0)
        full = [self._padded(local) if local.numel() else local]
        for (l, m), pair in partial.items():
            pad = [*(padding if m == self.lead else none), *(padding if l == self.lead else none)]
            full.append(torch.nn.functional.pad(pair, pad))
        flat = self.processes.reduced(torch.cat([tensor.flatten() for tensor in full]))
        parts = flat.split([tensor.numel() for tensor in full])
        vector, *pairs = (part.view(tensor.shape) for part, tensor in zip(parts, full))
        return vector, dict(zip(partial, pairs))

    def hessian(self, partial: dict[Edge, Tensor], marginals: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the function x -> H x of newton.py for vectors (b, N), given the pair marginals of this slab."""
        own = self.own(marginals)
        matrix = block_matrix(partial, torch.zeros_like(own), self.own_sizes)

        def multiply(vector: Tensor) -> Tensor:
            return self.summed(torch.bmm(matrix, self.own(vector).unsqueeze(-1)).squeeze(-1)).addcmul_(
                marginals, vector
            )

        return multiply
