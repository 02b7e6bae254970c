"""Order of the training rows, determined by seed and epoch, and its division among processes.

One global order of the rows is drawn per epoch. Each step uses the next `world * batch_size` rows, where `world` is the
number of processes. Of these, process r uses the rows at positions r, r + world, r + 2 world and so on. Two processes
with batches of b rows therefore use the same rows as one process with batches of 2b. An incomplete step at the end of
an epoch is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor, distributed
from torch.utils.data import DistributedSampler

from m3g import _checks

log = logging.getLogger(__name__)


class Draw(NamedTuple):
    """A training row to load. Its epoch, and its position in the order of that epoch, seed the augmentations."""

    epoch: int
    position: int
    row: int | tuple[int, ...]


def generator(*key: int) -> np.random.Generator:
    """Return a random generator seeded with all numbers of the key."""
    return np.random.default_rng(np.random.SeedSequence([int(part) for part in key]))


class EpochSampler(DistributedSampler[Draw]):
    """Sampler that draws each row at most once per epoch, in an order determined by seed and epoch.

    Each process uses every world-th row of the order. The class inherits from `DistributedSampler` because Lightning
    neither replaces nor wraps such a sampler, and calls its `set_epoch`.

    Args:
        num_rows: number of training rows.
        batch_size: rows per process and step.
        seed: determines the order, together with the epoch.
        rank, world: index of this process and number of processes; by default those of `torch.distributed`.

    Example:
        >>> sampler = EpochSampler(10, batch_size=4)
        >>> len(sampler), sorted(draw.row for draw in sampler)[-1] < 10
        (8, True)
        >>> sampler.resume(epoch=0, batches=1)  # the first batch was used before an interruption
        >>> len(list(sampler)), len(list(sampler))
        (4, 8)
    """

    def __init__(
        self,
        num_rows: int,
        *,
        batch_size: int,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
    ):
        is_distributed = distributed.is_available() and distributed.is_initialized()
        world = world if world is not None else (distributed.get_world_size() if is_distributed else 1)
        rank = rank if rank is not None else (distributed.get_rank() if is_distributed else 0)
        super().__init__(range(num_rows), num_replicas=world, rank=rank, seed=seed)  # type: ignore[arg-type]
        self.batch_size = _checks.positive_int("batch_size", batch_size)
        self.num_rows = num_rows
        self.step_rows = batch_size * world
        if self.step_rows > num_rows:
            per = "" if world == 1 else f" per process ({num_rows} rows, {world} processes)"
            raise ValueError(
                f"batch_size must be at most {num_rows // world}, the number of training rows{per}, got {batch_size}."
            )
        self.num_steps = num_rows // self.step_rows
        self.num_samples = self.num_steps * batch_size
        self.total_size = self.num_steps * self.step_rows
        self._skip: tuple[int, int] = (0, 0)
        if self.num_unused and rank == 0:
            log.info(
                "Each epoch has %d steps of %d rows; %d of %d rows, different in each epoch, are not used.",
                self.num_steps, self.step_rows, self.num_unused, num_rows,
            )  # fmt: skip

    @property
    def num_unused(self) -> int:
        """Number of rows that an epoch does not use, because they do not fill a step."""
        return self.num_rows - self.total_size

    def order(self, epoch: int) -> Sequence[int | tuple[int, ...]]:
        """Return the rows of an epoch in order, for all processes together."""
        rows: list[int] = generator(self.seed, epoch).permutation(self.num_rows)[: self.total_size].tolist()
        return rows

    def resume(self, *, epoch: int, batches: int) -> None:
        """Let the next iteration, if it is over epoch `epoch`, skip the first `batches` batches of this process."""
        if not 0 <= batches <= self.num_steps:
            raise ValueError(f"batches must be a number from 0 to {self.num_steps}, got {batches}.")
        self._skip = (epoch, batches)

    def __iter__(self) -> Iterator[Draw]:
        epoch, batches = self._skip
        first = batches * self.batch_size if epoch == self.epoch else 0
        self._skip = (0, 0)
        order = self.order(self.epoch)
        for position in range(self.rank + first * self.num_replicas, self.total_size, self.num_replicas):
            yield Draw(self.epoch, position, order[position])

    def __len__(self) -> int:
        return self.num_samples


class ClassAlignedSampler(EpochSampler):
    """Sampler of the paper's multi-domain batches: n random classes and, for each, one random image per domain.

    A row is a tuple of k image indices of one class. The classes of a step are distinct over all processes if there are
    enough classes, and otherwise within each process.

    Args:
        members: per domain, a mapping from class to the indices of its images; only shared classes are drawn.
        points: tuples drawn per epoch, rounded down to whole steps.
        batch_size, seed, rank, world: as in `EpochSampler`.
    """

    def __init__(
        self,
        members: Sequence[Mapping[int, Sequence[int]]],
        *,
        points: int,
        batch_size: int,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
    ):
        super().__init__(points, batch_size=batch_size, seed=seed, rank=rank, world=world)
        self.members = members
        self.classes = shared_classes(members)
        if batch_size > len(self.classes):
            raise ValueError(
                f"batch_size must be at most {len(self.classes)}, the number of classes that all domains share, "
                f"got {batch_size}: a batch has one point per class."
            )

    @property
    def num_unused(self) -> int:
        return 0  # points are drawn at random, not enumerated

    def order(self, epoch: int) -> Sequence[tuple[int, ...]]:
        random = generator(self.seed, epoch)
        return [
            tuple(int(random.choice(domain[self.classes[c]])) for domain in self.members)
            for _ in range(self.num_steps)
            for c in self._step_classes(random)
        ]

    def _step_classes(self, random: np.random.Generator) -> np.ndarray:
        """Return the class indices of a step, for all processes together."""
        if self.step_rows <= len(self.classes):
            return random.permutation(len(self.classes))[: self.step_rows]
        per_process = [random.permutation(len(self.classes)) for _ in range(self.num_replicas)]
        # Interleaved, because each process uses every world-th row.
        return np.stack([classes[: self.batch_size] for classes in per_process], axis=1).reshape(-1)


def by_class(rows: np.ndarray, labels: Tensor) -> dict[int, list[int]]:
    """Return a mapping from class to those of `rows` in this class; `labels` has the classes of all rows."""
    groups: dict[int, list[int]] = {}
    for row in rows:
        groups.setdefault(int(labels[row]), []).append(int(row))
    return groups


def shared_classes(domains: Sequence[Mapping[int, Sequence[int]]]) -> list[int]:
    """Return the classes common to all domains."""
    return sorted(set(domains[0]).intersection(*domains[1:]))


def aligned_points(domains: Sequence[Mapping[int, Sequence[int]]]) -> list[tuple[int, ...]]:
    """Return tuples of one row per domain, all of the same class, in a fixed order.

    Each row is used at most once. Rows without a counterpart in every domain are discarded.

    Example:
        >>> aligned_points([{0: [1, 2], 1: [3]}, {0: [7, 8, 9]}])
        [(1, 7), (2, 8)]
    """
    return [point for c in shared_classes(domains) for point in zip(*(domain[c] for domain in domains))]
