"""Processes that share a solve, simulated by threads, whose exchanges wait for all of them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

from m3g.solvers.shared.processes import CARRIED, Processes


class Member(Processes):
    """One of several threads that exchange tensors as processes do."""

    def __init__(self, rank, count, barrier, sent):
        object.__setattr__(self, "device", torch.device("cpu"))
        for name, value in {"_rank": rank, "_count": count, "_barrier": barrier, "_sent": sent}.items():
            object.__setattr__(self, name, value)

    rank = property(lambda self: self._rank)
    count = property(lambda self: self._count)

    def _exchange(self, local):
        """Return the tensors of all threads."""
        self._sent[self.rank] = local
        self._barrier.wait(20)
        tensors = list(self._sent)
        self._barrier.wait(20)
        return tensors

    def _all_reduce(self, numbers, *, failed=False):
        padded = [float(failed), *numbers, *[0.0] * (CARRIED - len(numbers))]
        return [sum(each) for each in zip(*self._exchange(padded))]

    def reduced(self, tensor, by="SUM"):
        self._synchronise()
        tensors = torch.stack(self._exchange(tensor))
        return {"SUM": tensors.sum, "MIN": tensors.amin, "MAX": tensors.amax}[by](0)

    def joined(self, local, n, *, dim=1):
        self._synchronise()
        tensors = torch.cat(self._exchange(local), dim)
        assert tensors.shape[dim] == n
        return tensors


def in_group(count, function):
    """Return `function(processes)` of every member of a group."""
    barrier, sent = threading.Barrier(count), [None] * count
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(lambda rank: function(Member(rank, count, barrier, sent)), range(count)))
